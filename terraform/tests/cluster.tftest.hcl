# What the configuration makes of its variables, with a provider that is made up.

mock_provider "aws" {
  mock_data "aws_ec2_instance_type" {
    defaults = {
      supported_architectures        = ["x86_64"]
      supported_placement_strategies = ["cluster", "spread"]
      instance_storage_supported     = true
    }
  }

  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-east-2c", "us-east-2b"] }
  }

  mock_data "aws_ami" {
    defaults = { id = "ami-0123456789abcdef0" }
  }

  mock_resource "aws_instance" {
    defaults = { public_ip = "3.120.1.2" }
  }
}

variables {
  ssh_cidr       = "203.0.113.7/32"
  ssh_public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHyGcbZtL1IxkZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ researcher"
}

run "the_papers_hosts" {
  assert {
    condition     = [for r in ["control", "storage", "compute", "input"] : length([for h in aws_instance.host : h if h.tags.Role == r])] == [1, 4, 4, 4]
    error_message = "not 1 control, 4 storage, 4 compute, 4 input hosts"
  }
  assert {
    condition     = length(distinct([for h in aws_instance.host : h.private_ip])) == 13
    error_message = "two hosts have one private address"
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : cidrsubnet("${h.private_ip}/24", 0, 0) == aws_subnet.cluster.cidr_block])
    error_message = "a private address is outside of the subnet"
  }
  assert {
    condition     = aws_subnet.cluster.cidr_block == "10.0.0.0/24" && aws_subnet.cluster.availability_zone == "us-east-2b"
    error_message = "the subnet is not the first /24, or not in the first zone that offers the type"
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : h.placement_group == "tailrace" && h.instance_type == "c5d.2xlarge"])
    error_message = "a host is outside of the placement group, or of another type"
  }
  assert {
    condition     = output.instances == "control 1 c5d.2xlarge 20 demand\nstorage 4 c5d.2xlarge 20 demand\ncompute 4 c5d.2xlarge 20 demand\ninput 4 c5d.2xlarge 20 demand\n"
    error_message = "output instances: ${output.instances}"
  }
}

run "hosts_file" {
  variables {
    storage_count = 3
    compute_count = 2
    input_count   = 1
  }
  assert {
    condition     = output.hosts_file == <<-E
      # Cluster tailrace, us-east-2, amd64; the format is in scripts/cluster/hosts.sh
      option cluster tailrace
      control control-1 10.0.0.10 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
      storage storage-1 10.0.0.16 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd TAILRACE_ZONE=us-east-2b
      sequencer storage-1 10.0.0.16 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
      storage storage-2 10.0.0.17 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd TAILRACE_ZONE=us-east-2b
      sequencer storage-2 10.0.0.17 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
      storage storage-3 10.0.0.18 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd TAILRACE_ZONE=us-east-2b
      sequencer storage-3 10.0.0.18 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
      compute compute-1 10.0.0.96 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
      compute compute-2 10.0.0.97 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
      input input-1 10.0.0.176 admin@3.120.1.2 data=/mnt/tailrace type=c5d.2xlarge launch=systemd
    E
    error_message = "output hosts_file:\n${output.hosts_file}"
  }
  assert {
    condition     = output.hosts[1].roles == ["storage", "sequencer"] && output.hosts[1].ssh_user == "admin"
    error_message = "output hosts: ${jsonencode(output.hosts[1])}"
  }
}

run "sequencers_on_the_first_storage_hosts" {
  variables {
    storage_count   = 12
    sequencer_count = 5
    os              = "ubuntu"
  }
  assert {
    condition     = [for h in output.hosts : h.name if contains(h.roles, "sequencer")] == [for i in range(5) : "storage-${i + 1}"]
    error_message = "sequencers are not on storage-1 to storage-5"
  }
  assert {
    condition     = [for h in output.hosts : h.name if contains(h.roles, "storage")][11] == "storage-12"
    error_message = "hosts are not in the order of their numbers"
  }
  assert {
    condition     = strcontains(output.hosts_file, "storage storage-12 10.0.0.27 ubuntu@")
    error_message = "output hosts_file:\n${output.hosts_file}"
  }
}

run "closed_to_the_world" {
  assert {
    condition     = aws_vpc_security_group_ingress_rule.ssh.cidr_ipv4 == "203.0.113.7/32" && aws_vpc_security_group_ingress_rule.ssh.from_port == 22 && aws_vpc_security_group_ingress_rule.ssh.to_port == 22
    error_message = "SSH is open to others than ssh_cidr"
  }
  assert {
    condition     = aws_vpc_security_group_ingress_rule.members.referenced_security_group_id == aws_security_group.member.id && aws_vpc_security_group_ingress_rule.members.ip_protocol == "-1"
    error_message = "members do not talk freely"
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : h.vpc_security_group_ids == toset([aws_security_group.member.id])])
    error_message = "a host is in another group"
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : h.metadata_options[0].http_tokens == "required"])
    error_message = "a host answers metadata requests without a token"
  }
}

run "nothing_stays" {
  assert {
    condition     = alltrue([for h in aws_instance.host : h.instance_initiated_shutdown_behavior == "terminate" && h.root_block_device[0].delete_on_termination])
    error_message = "a host that switches itself off stays, or its disk does"
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : length(h.instance_market_options) == 0])
    error_message = "spot without being asked"
  }
}

run "user_data" {
  variables {
    max_hours = 1.5
  }
  assert {
    condition     = alltrue([for d in local.user_data : startswith(d, "#cloud-config\n") && length(yamldecode(d).write_files) == length(fileset("templates/units", "*")) + 4])
    error_message = "user data is not a cloud-config with all units, three scripts and the host's file"
  }
  assert {
    condition     = alltrue([for d in local.user_data : yamldecode(d).runcmd == [["/usr/local/sbin/tailrace-provision"]]])
    error_message = "provisioning is not run"
  }
  assert {
    condition     = [for f in yamldecode(local.user_data["storage-1"]).write_files : f.content if f.path == "/etc/tailrace/host"][0] == "# What this host is for. Read by tailrace-provision and tailrace-disk.\nOS=debian\nPACKAGES=\"\"\nDISK=required\nDATA=/mnt/tailrace\nMAX_MINUTES=90\n"
    error_message = local.user_data["storage-1"]
  }
  assert {
    condition     = strcontains([for f in yamldecode(local.user_data["control-1"]).write_files : f.content if f.path == "/etc/tailrace/host"][0], "PACKAGES=\"redis\"\n")
    error_message = "the control host, where the checkpoint store is, gets no Redis"
  }
  assert {
    condition     = strcontains([for f in yamldecode(local.user_data["compute-1"]).write_files : f.content if f.path == "/etc/tailrace/host"][0], "DISK=optional\n")
    error_message = "compute hosts cannot do without a local disk"
  }
  assert {
    condition     = strcontains([for f in yamldecode(local.user_data["storage-1"]).write_files : f.content if f.path == "/usr/local/sbin/tailrace-disk"][0], "mount -o noatime \"$disk\" \"$DATA\"")
    error_message = "the disk is not mounted"
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : length(h.user_data_base64) * 3 / 4 <= 16384])
    error_message = "user data is above EC2's 16 KiB"
  }
}

run "spot" {
  variables {
    spot = true
  }
  assert {
    condition     = alltrue([for h in aws_instance.host : h.instance_market_options[0].market_type == "spot" && h.instance_market_options[0].spot_options[0].instance_interruption_behavior == "terminate"])
    error_message = "not spot, or an interruption does not end the host"
  }
}

run "arm64" {
  variables {
    architecture = "arm64"
    os           = "amazon"
    storage_type = "c7gd.2xlarge"
    compute_type = "c7gd.2xlarge"
    input_type   = "c7gd.2xlarge"
    control_type = "c7gd.2xlarge"
  }
  override_data {
    target = data.aws_ec2_instance_type.of
    values = {
      supported_architectures        = ["arm64"]
      supported_placement_strategies = ["cluster", "spread"]
      instance_storage_supported     = true
    }
  }
  assert {
    condition     = [for f in data.aws_ami.system.filter : join(",", f.values) if f.name == "architecture"] == ["arm64"] && data.aws_ami.system.owners[0] == "137112412989"
    error_message = "an image of another architecture or owner"
  }
}

run "few_storage_hosts_are_remarked" {
  command = plan
  variables {
    storage_count   = 1
    sequencer_count = 1
  }
  expect_failures = [check.replication]
}
