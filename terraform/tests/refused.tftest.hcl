# What is refused before anything is made, each by the variable or the object that is
# wrong.

mock_provider "aws" {
  mock_data "aws_ec2_instance_type" {
    defaults = {
      supported_architectures        = ["x86_64"]
      supported_placement_strategies = ["cluster", "spread"]
      instance_storage_supported     = true
    }
  }

  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-east-2b"] }
  }
}

variables {
  ssh_cidr       = "203.0.113.7/32"
  ssh_public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHyGcbZtL1IxkZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ researcher"
}

run "the_world" {
  command = plan
  variables {
    ssh_cidr = "0.0.0.0/0"
  }
  expect_failures = [var.ssh_cidr]
}

run "half_of_the_world" {
  command = plan
  variables {
    ssh_cidr = "128.0.0.0/1"
  }
  expect_failures = [var.ssh_cidr]
}

run "not_a_block" {
  command = plan
  variables {
    ssh_cidr = "203.0.113.7"
  }
  expect_failures = [var.ssh_cidr]
}

run "all_of_ipv6" {
  command = plan
  variables {
    ssh_cidr = "::/0"
  }
  expect_failures = [var.ssh_cidr]
}

run "a_private_key" {
  command = plan
  variables {
    ssh_public_key = "-----BEGIN OPENSSH PRIVATE KEY-----"
  }
  expect_failures = [var.ssh_public_key]
}

run "a_file_name" {
  command = plan
  variables {
    ssh_public_key = "~/.ssh/id_ed25519.pub"
  }
  expect_failures = [var.ssh_public_key]
}

run "a_zone_for_a_region" {
  command = plan
  variables {
    region = "us-east-2a"
  }
  expect_failures = [var.region]
}

run "a_zone_of_another_region" {
  command = plan
  variables {
    availability_zone = "eu-west-1a"
  }
  expect_failures = [var.availability_zone]
}

run "a_public_network" {
  command = plan
  variables {
    vpc_cidr = "8.8.0.0/16"
  }
  expect_failures = [var.vpc_cidr]
}

run "no_storage" {
  command = plan
  variables {
    storage_count   = 0
    sequencer_count = 1
  }
  expect_failures = [var.storage_count]
}

run "half_a_host" {
  command = plan
  variables {
    compute_count = 1.5
  }
  expect_failures = [var.compute_count]
}

run "no_compute" {
  command = plan
  variables {
    compute_count = 0
  }
  expect_failures = [var.compute_count]
}

run "even_sequencers" {
  command = plan
  variables {
    sequencer_count = 4
  }
  expect_failures = [var.sequencer_count]
}

run "more_sequencers_than_storage" {
  command = plan
  variables {
    storage_count   = 3
    sequencer_count = 5
  }
  expect_failures = [var.sequencer_count]
}

run "a_misspelt_size" {
  command = plan
  variables {
    storage_type = "i4i.lorge"
  }
  expect_failures = [var.storage_type]
}

run "no_size" {
  command = plan
  variables {
    compute_type = "c5d"
  }
  expect_failures = [var.compute_type]
}

run "no_number" {
  command = plan
  variables {
    input_type = "c.large"
  }
  expect_failures = [var.input_type]
}

run "an_unknown_architecture" {
  command = plan
  variables {
    architecture = "x86"
  }
  expect_failures = [var.architecture]
}

run "an_unknown_system" {
  command = plan
  variables {
    os = "windows"
  }
  expect_failures = [var.os]
}

run "no_end" {
  command = plan
  variables {
    max_hours = 0
  }
  expect_failures = [var.max_hours]
}

run "a_bad_name" {
  command = plan
  variables {
    name = "My Cluster"
  }
  expect_failures = [var.name]
}

run "another_architecture" {
  command = plan
  variables {
    architecture = "arm64"
  }
  expect_failures = [aws_instance.host]
}

run "storage_without_a_local_disk" {
  command = plan
  variables {
    storage_type = "c5.2xlarge"
  }
  override_data {
    target = data.aws_ec2_instance_type.of["c5.2xlarge"]
    values = {
      supported_architectures        = ["x86_64"]
      supported_placement_strategies = ["cluster", "spread"]
      instance_storage_supported     = false
    }
  }
  expect_failures = [aws_instance.host]
}

run "compute_without_a_local_disk_is_fine" {
  command = plan
  variables {
    compute_type = "c5.2xlarge"
  }
  override_data {
    target = data.aws_ec2_instance_type.of["c5.2xlarge"]
    values = {
      supported_architectures        = ["x86_64"]
      supported_placement_strategies = ["cluster", "spread"]
      instance_storage_supported     = false
    }
  }
}

run "a_type_that_cannot_be_placed" {
  command = plan
  variables {
    compute_type = "t3.large"
  }
  override_data {
    target = data.aws_ec2_instance_type.of["t3.large"]
    values = {
      supported_architectures        = ["x86_64"]
      supported_placement_strategies = ["partition", "spread"]
    }
  }
  expect_failures = [aws_instance.host]
}

run "no_zone_has_all_types" {
  command = plan
  variables {
    storage_type = "i4i.xlarge"
  }
  override_data {
    target = data.aws_ec2_instance_type_offerings.of["i4i.xlarge"]
    values = { locations = ["us-east-2c"] }
  }
  expect_failures = [aws_subnet.cluster]
}

run "a_zone_without_the_type" {
  command = plan
  variables {
    availability_zone = "us-east-2a"
  }
  expect_failures = [aws_subnet.cluster]
}
