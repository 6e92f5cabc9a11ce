# One network of its own for each cluster: destroying it cannot touch anything else.

locals {
  subnet_bits = 24 - tonumber(split("/", var.vpc_cidr)[1])
  subnet      = cidrsubnet(var.vpc_cidr, local.subnet_bits, 0)

  # The zones that offer every type; the first, if none is asked for.
  zones = sort(tolist(setintersection([for o in data.aws_ec2_instance_type_offerings.of : toset(o.locations)]...)))
  zone  = var.availability_zone != "" ? var.availability_zone : try(local.zones[0], "")
}

resource "aws_vpc" "cluster" {
  # checkov:skip=CKV2_AWS_11: no flow logs: the network lives for hours, carries a benchmark, and logging each flow costs and disturbs.

  cidr_block           = var.vpc_cidr
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = { Name = var.name }
}

# The group that AWS gives every network, with nothing allowed.
resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.cluster.id
}

# All hosts in one subnet of one zone: Impeller's latencies are within a placement group.
resource "aws_subnet" "cluster" {
  vpc_id            = aws_vpc.cluster.id
  cidr_block        = local.subnet
  availability_zone = local.zone

  tags = { Name = var.name }

  lifecycle {
    precondition {
      condition     = contains(local.zones, local.zone)
      error_message = "No zone${var.availability_zone != "" ? " ${var.availability_zone}" : ""} of ${var.region} that offers all of ${join(", ", local.types)}: choose other types or another region${length(local.zones) > 0 ? "; these zones do: ${join(", ", local.zones)}" : ""}."
    }
  }
}

resource "aws_internet_gateway" "cluster" {
  vpc_id = aws_vpc.cluster.id

  tags = { Name = var.name }
}

resource "aws_route_table" "cluster" {
  vpc_id = aws_vpc.cluster.id

  tags = { Name = var.name }
}

# Out, for packages; and the way back for SSH. What may come in is in security.tf.
resource "aws_route" "out" {
  route_table_id         = aws_route_table.cluster.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.cluster.id
}

resource "aws_route_table_association" "cluster" {
  subnet_id      = aws_subnet.cluster.id
  route_table_id = aws_route_table.cluster.id
}

resource "aws_placement_group" "cluster" {
  name     = var.name
  strategy = "cluster"
}
