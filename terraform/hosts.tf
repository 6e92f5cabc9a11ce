# The hosts: which there are, on what image, and what they do when they start.

locals {
  tags = merge(var.tags, { Project = "tailrace", Cluster = var.name })

  type_form = "^[a-z][a-z0-9-]*[0-9][a-z0-9-]*\\.(nano|micro|small|medium|large|([0-9]+)?xlarge|metal(-[0-9]+xl)?)$"

  # first: where the role's private addresses begin in the subnet; fixed, because a
  # storage node's address is its name. disk: the role cannot do without a local one.
  # packages: what it needs besides our programs.
  roles = [
    { role = "control", count = 1, type = var.control_type, first = 10, disk = "optional", packages = ["redis"] },
    { role = "storage", count = var.storage_count, type = var.storage_type, first = 16, disk = "required", packages = [] },
    { role = "compute", count = var.compute_count, type = var.compute_type, first = 96, disk = "optional", packages = [] },
    { role = "input", count = var.input_count, type = var.input_type, first = 176, disk = "optional", packages = [] },
  ]

  # In the order in which people read them; storage-10 behind storage-9.
  host_list = flatten([
    for r in local.roles : [
      for i in range(r.count) : merge(r, {
        name      = "${r.role}-${i + 1}"
        address   = cidrhost(local.subnet, r.first + i)
        sequencer = r.role == "storage" && i < var.sequencer_count
      })
    ]
  ])
  hosts = { for h in local.host_list : h.name => h }
  types = sort(distinct([for h in local.host_list : h.type]))

  systems = {
    debian = {
      owner = "136693071363"
      image = "debian-13-${var.architecture}-*"
      user  = "admin"
    }
    ubuntu = {
      owner = "099720109477"
      image = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-${var.architecture}-server-*"
      user  = "ubuntu"
    }
    amazon = {
      owner = "137112412989"
      image = "al2023-ami-2023.*-${local.machine}"
      user  = "ec2-user"
    }
  }
  system  = local.systems[var.os]
  machine = { amd64 = "x86_64", arm64 = "arm64" }[var.architecture] # as EC2 says it

  data = "/mnt/tailrace"

  # What a host finds at its first start. No secret is among it: who can log in can
  # read it, and it is in the state. Keys are made and brought by scripts/cluster/keys.sh
  # (the tls provider would keep every private key in the state, readable).
  cloud_config = {
    for name, h in local.hosts : name => {
      hostname    = h.name
      write_files = concat(local.files, [{ path = "/etc/tailrace/host", permissions = "0644", content = local.purpose[name] }])
      runcmd      = [["/usr/local/sbin/tailrace-provision"]]
    }
  }
  user_data = { for name, c in local.cloud_config : name => join("\n", ["#cloud-config", yamlencode(c)]) }

  purpose = {
    for name, h in local.hosts : name => templatefile("${path.module}/templates/host.tftpl", {
      os          = var.os
      packages    = h.packages
      disk        = h.disk
      max_minutes = ceil(var.max_hours * 60)
      data        = local.data
    })
  }

  files = concat(
    [for f in ["provision", "disk", "deadline"] : {
      path        = "/usr/local/sbin/tailrace-${f}"
      permissions = "0755"
      content     = file("${path.module}/templates/${f}.sh")
    }],
    [for f in sort(fileset("${path.module}/templates/units", "*")) : {
      path        = "/etc/systemd/system/${f}"
      permissions = "0644"
      content     = file("${path.module}/templates/units/${f}")
    }],
  )
}

data "aws_ami" "system" {
  most_recent = true
  owners      = [local.system.owner]

  filter {
    name   = "name"
    values = [local.system.image]
  }

  filter {
    name   = "architecture"
    values = [local.machine]
  }

  filter {
    name   = "virtualization-type"
    values = ["hvm"]
  }
}

data "aws_ec2_instance_type" "of" {
  for_each = toset(local.types)

  instance_type = each.key
}

data "aws_ec2_instance_type_offerings" "of" {
  for_each = toset(local.types)

  location_type = "availability-zone"

  filter {
    name   = "instance-type"
    values = [each.key]
  }
}

resource "aws_instance" "host" {
  # checkov:skip=CKV_AWS_88: a public address each: the scripts reach every host by SSH; what may come in is ssh_cidr only. A bastion and a NAT gateway would cost more than the hosts' disks.
  # checkov:skip=CKV_AWS_126: no detailed monitoring: a run is measured by the programs themselves, and it costs by host and hour.
  # checkov:skip=CKV2_AWS_41: no role: the programs call no AWS service, so a host has no credentials to lose.

  for_each = local.hosts

  ami                         = data.aws_ami.system.id
  instance_type               = each.value.type
  subnet_id                   = aws_subnet.cluster.id
  private_ip                  = each.value.address
  associate_public_ip_address = true
  vpc_security_group_ids      = [aws_security_group.member.id]
  key_name                    = aws_key_pair.login.key_name
  placement_group             = aws_placement_group.cluster.name
  ebs_optimized               = true

  user_data_base64            = base64gzip(local.user_data[each.key])
  user_data_replace_on_change = true

  # A host that switches itself off is gone, with its disks: see templates/deadline.sh.
  instance_initiated_shutdown_behavior = "terminate"

  root_block_device {
    volume_type           = "gp3"
    volume_size           = var.root_gib
    encrypted             = true
    delete_on_termination = true
    tags                  = merge(local.tags, { Name = "${var.name}-${each.key}" })
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  dynamic "instance_market_options" {
    for_each = var.spot ? ["spot"] : []

    content {
      market_type = "spot"

      spot_options {
        spot_instance_type             = "one-time"
        instance_interruption_behavior = "terminate"
      }
    }
  }

  tags = { Name = "${var.name}-${each.key}", Role = each.value.role }

  # Its first start fetches packages.
  depends_on = [aws_route.out, aws_route_table_association.cluster, aws_vpc_security_group_egress_rule.packages]

  lifecycle {
    # A newer image must not replace hosts in the middle of a day's runs.
    ignore_changes = [ami]

    precondition {
      condition     = contains(data.aws_ec2_instance_type.of[each.value.type].supported_architectures, local.machine)
      error_message = "${each.value.role}_type ${each.value.type} is not ${var.architecture}: choose another type, or set architecture."
    }

    precondition {
      condition     = contains(data.aws_ec2_instance_type.of[each.value.type].supported_placement_strategies, "cluster")
      error_message = "${each.value.role}_type ${each.value.type} cannot be in a cluster placement group (the burstable types t3, t4g cannot): choose another type."
    }

    precondition {
      condition     = each.value.disk != "required" || data.aws_ec2_instance_type.of[each.value.type].instance_storage_supported
      error_message = "${each.value.role}_type ${each.value.type} has no local disk, and ${each.value.role} hosts keep their data on one: choose a type with a d (c5d, c6id, c7gd) or of the i families (i4i)."
    }
  }
}

# Not refused: a trial of one storage host is useful.
check "replication" {
  assert {
    condition     = var.storage_count >= 3
    error_message = "With fewer than 3 storage hosts records have fewer than 3 copies: not the paper's setting, and losing a host may lose records."
  }
}
