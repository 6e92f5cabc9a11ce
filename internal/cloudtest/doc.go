// Package cloudtest checks terraform/ and the scripts around it, without terraform, AWS or a spare
// machine. It has only tests:
//
//  1. Every name that is used exists: each variable, local value and output that a file of
//     terraform/ or a script names is declared, and each that is declared is used.
//  2. scripts/cluster/preflight.sh reports all problems, with their places and remedies, before
//     anything is created. The aws command of these tests is a script that gives AWS's answers.
//  3. scripts/cluster/cost.sh counts what terraform would create (cmd/tailrace/clustertest: what a
//     hosts file has).
//  4. A host formats a blank local disk once, mounts it at every start, touches nothing else, and
//     refuses to continue without a disk that it needs (real blkid and mkfs on files; mount only
//     records its calls).
//  5. A host is terminated at its time, and at once if that time is unknown.
//
// scripts/terraform-check.sh checks what needs terraform.
package cloudtest
