# In: SSH from ssh_cidr. Among the hosts: everything. Out: packages. Nothing else.

resource "aws_key_pair" "login" {
  key_name   = var.name
  public_key = trimspace(var.ssh_public_key)
}

resource "aws_security_group" "member" {
  # checkov:skip=CKV2_AWS_5: it is attached, to each aws_instance.host; checkov does not follow for_each.

  name        = "${var.name}-member"
  description = "Hosts of the Tailrace cluster ${var.name}"
  vpc_id      = aws_vpc.cluster.id

  tags = { Name = "${var.name}-member" }
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  security_group_id = aws_security_group.member.id
  description       = "SSH from the researcher"
  cidr_ipv4         = var.ssh_cidr
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_vpc_security_group_ingress_rule" "members" {
  security_group_id            = aws_security_group.member.id
  description                  = "Everything from other members"
  referenced_security_group_id = aws_security_group.member.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "members" {
  security_group_id            = aws_security_group.member.id
  description                  = "Everything to other members"
  referenced_security_group_id = aws_security_group.member.id
  ip_protocol                  = "-1"
}

# Packages come over HTTP and HTTPS. The name server and the time service of the
# network are not subject to security groups.
resource "aws_vpc_security_group_egress_rule" "packages" {
  for_each = toset(["80", "443"])

  security_group_id = aws_security_group.member.id
  description       = "Packages, port ${each.key}"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
}
