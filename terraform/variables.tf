# What can be set, with its bounds. Values come from terraform.tfvars (see
# terraform.tfvars.example), TF_VAR_* or -var. scripts/cluster/settings.sh reads the
# defaults of this file: each is a plain value on one line.

variable "ssh_cidr" {
  description = "The addresses that may reach the hosts by SSH, nothing else may: yours, as A.B.C.D/32."
  type        = string

  validation {
    condition     = can(cidrnetmask(var.ssh_cidr)) && try(tonumber(split("/", var.ssh_cidr)[1]) >= 16, false)
    error_message = "ssh_cidr: an IPv4 block of at most a /16, and never 0.0.0.0/0: the hosts are not to be open to the world. Your own address with /32 is best (curl https://checkip.amazonaws.com)."
  }
}

variable "ssh_public_key" {
  description = "The public key that may log in, one line as in ~/.ssh/id_ed25519.pub. Its private half stays where it is."
  type        = string

  validation {
    condition     = can(regex("^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{60,}={0,3}( [^\\n]*)?\\n?$", var.ssh_public_key))
    error_message = "ssh_public_key: the text of a public key, such as the line in ~/.ssh/id_ed25519.pub (ssh-keygen -t ed25519 makes one), not a file name and never a private key."
  }
}

variable "region" {
  description = "The AWS region. us-east-2 is Impeller's (section 5.1)."
  type        = string
  default     = "us-east-2"

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region: such as us-east-2 or eu-central-1, without the zone's letter."
  }
}

variable "availability_zone" {
  description = "The zone of all hosts, such as us-east-2a; empty: the first that offers all instance types."
  type        = string
  default     = ""

  validation {
    condition     = var.availability_zone == "" || can(regex("^${var.region}[a-z]$", var.availability_zone))
    error_message = "availability_zone: the region and a letter, such as us-east-2a, or empty."
  }
}

variable "name" {
  description = "Goes before the name of everything that is made. Two clusters in one region need two names."
  type        = string
  default     = "tailrace"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "name: up to 20 lower-case letters, digits and hyphens, a letter first."
  }
}

variable "vpc_cidr" {
  description = "The private addresses of the cluster; its first /24 is used."
  type        = string
  default     = "10.0.0.0/16"

  validation {
    condition     = can(cidrnetmask(var.vpc_cidr)) && can(regex("^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.).*/(1[6-9]|2[0-4])$", var.vpc_cidr))
    error_message = "vpc_cidr: a private IPv4 block from /16 to /24, such as 10.0.0.0/16."
  }
}

# Roles. The defaults are Impeller's 13 hosts (section 5.1). There is one control host:
# its etcd is of one member.

variable "storage_count" {
  description = "Storage hosts: they keep the log and the sequencers' metalog."
  type        = number
  default     = 4

  validation {
    condition     = var.storage_count >= 1 && var.storage_count <= 60 && floor(var.storage_count) == var.storage_count
    error_message = "storage_count: from 1 to 60; without a storage host there is no log."
  }
}

variable "sequencer_count" {
  description = "Sequencers, on the first so many storage hosts (as Impeller places Boki's)."
  type        = number
  default     = 3

  validation {
    condition     = contains([1, 3, 5], var.sequencer_count)
    error_message = "sequencer_count: 3 or 5 (or 1, for a trial): an even number survives no more failures than one less."
  }

  validation {
    condition     = var.sequencer_count <= var.storage_count
    error_message = "sequencer_count: no more than storage_count, because sequencers live on storage hosts."
  }
}

variable "compute_count" {
  description = "Compute hosts: workers that run the queries' stages."
  type        = number
  default     = 4

  validation {
    condition     = var.compute_count >= 1 && var.compute_count <= 60 && floor(var.compute_count) == var.compute_count
    error_message = "compute_count: from 1 to 60; a host must run the queries."
  }
}

variable "input_count" {
  description = "Input hosts: workers that make the events. 0: compute hosts make them too."
  type        = number
  default     = 4

  validation {
    condition     = var.input_count >= 0 && var.input_count <= 60 && floor(var.input_count) == var.input_count
    error_message = "input_count: from 0 to 60."
  }
}

variable "storage_type" {
  description = "Instance type of the storage hosts. It must have a local NVMe disk."
  type        = string
  default     = "c5d.2xlarge"

  validation {
    condition     = can(regex(local.type_form, var.storage_type))
    error_message = "storage_type: FAMILY.SIZE, such as c5d.2xlarge or i4i.xlarge."
  }
}

variable "compute_type" {
  description = "Instance type of the compute hosts."
  type        = string
  default     = "c5d.2xlarge"

  validation {
    condition     = can(regex(local.type_form, var.compute_type))
    error_message = "compute_type: FAMILY.SIZE, such as c5d.2xlarge."
  }
}

variable "input_type" {
  description = "Instance type of the input hosts."
  type        = string
  default     = "c5d.2xlarge"

  validation {
    condition     = can(regex(local.type_form, var.input_type))
    error_message = "input_type: FAMILY.SIZE, such as c5d.2xlarge."
  }
}

variable "control_type" {
  description = "Instance type of the control host: etcd, the task manager, the checkpoint store, and where sweeps run."
  type        = string
  default     = "c5d.2xlarge"

  validation {
    condition     = can(regex(local.type_form, var.control_type))
    error_message = "control_type: FAMILY.SIZE, such as c5d.2xlarge."
  }
}

variable "architecture" {
  description = "amd64 or arm64, of all hosts: they get the same programs."
  type        = string
  default     = "amd64"

  validation {
    condition     = contains(["amd64", "arm64"], var.architecture)
    error_message = "architecture: amd64 or arm64 (types with a g behind the number, such as c7gd, are arm64)."
  }
}

variable "os" {
  description = "debian (13), ubuntu (24.04) or amazon (Linux 2023)."
  type        = string
  default     = "debian"

  validation {
    condition     = contains(["debian", "ubuntu", "amazon"], var.os)
    error_message = "os: debian, ubuntu or amazon."
  }
}

variable "spot" {
  description = "Spot instances: a fraction of the price; AWS may end one at any moment, and the run with it."
  type        = bool
  default     = false
}

variable "max_hours" {
  description = "Hours after which a host ends itself, whatever runs on it: the end of the bill if somebody forgets to destroy."
  type        = number
  default     = 4

  validation {
    condition     = var.max_hours > 0 && var.max_hours <= 72
    error_message = "max_hours: above 0, at most 72."
  }
}

variable "root_gib" {
  description = "Size of the root disks in GiB."
  type        = number
  default     = 20

  validation {
    condition     = var.root_gib >= 10 && var.root_gib <= 1000 && floor(var.root_gib) == var.root_gib
    error_message = "root_gib: from 10 to 1000."
  }
}

variable "tags" {
  description = "More tags for everything that is made, to find its costs by."
  type        = map(string)
  default     = {}
}
