config {
  call_module_type = "none"
}

# The rules that come with tflint; those of the AWS rule set cannot be had through the
# Go module proxy.
plugin "terraform" {
  enabled = true
  preset  = "all"
}

# It wants a main.tf: here a file is one idea.
rule "terraform_standard_module_structure" {
  enabled = false
}
