# What scripts/cluster reads.

output "hosts_file" {
  description = "The hosts, as scripts/cluster/hosts.sh reads them: a line a role."
  value = templatefile("${path.module}/templates/hosts_file.tftpl", {
    name         = var.name
    region       = var.region
    architecture = var.architecture
    data         = local.data
    user         = local.system.user
    zone         = local.zone
    hosts        = [for h in local.host_list : merge(h, { public = aws_instance.host[h.name].public_ip })]
  })
}

output "hosts" {
  description = "The same as values."
  value = [for h in local.host_list : {
    name     = h.name
    roles    = concat([h.role], h.sequencer ? ["sequencer"] : [])
    type     = h.type
    address  = h.address
    public   = aws_instance.host[h.name].public_ip
    ssh_user = local.system.user
    data     = local.data
  }]
}

output "instances" {
  description = "What is paid for, a line a role: role, number, type, GiB of root disk, spot or demand."
  value       = join("", [for r in local.roles : "${r.role} ${r.count} ${r.type} ${var.root_gib} ${var.spot ? "spot" : "demand"}\n" if r.count > 0])
}

output "architecture" {
  description = "Of the programs to build: amd64 or arm64."
  value       = var.architecture
}

output "region" {
  description = "Where the hosts are."
  value       = var.region
}

output "max_hours" {
  description = "Hours after which the hosts end themselves."
  value       = var.max_hours
}
