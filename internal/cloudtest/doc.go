// Package cloudtest holds terraform/ and the scripts around it to what they promise,
// without terraform, without AWS and without a machine to spare: it has tests only.
//
//  1. What is used exists: each variable, local value and output that a file of
//     terraform/ or a script names is declared, and each that is declared is used.
//  2. scripts/cluster/preflight.sh says what stands in the way, with its place and what
//     to do, before anything is made. The aws command of these tests is a script that
//     gives the answers that AWS gives.
//  3. scripts/cluster/cost.sh counts what terraform would make (cmd/tailrace/clustertest:
//     what a hosts file has).
//  4. A host formats a blank local disk once, mounts it at every start, touches nothing
//     else, and refuses to go on without a disk that it needs (real blkid and mkfs on
//     files; mount is written down only).
//  5. A host's end is at its time, and at once if nobody can say when that is.
//
// What needs terraform is scripts/terraform-check.sh.
package cloudtest
