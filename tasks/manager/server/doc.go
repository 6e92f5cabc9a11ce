// Package server is the process around package manager: it campaigns in etcd, and while it leads it
// receives the workers' reports, passes them to the core and carries out the core's actions.
//
// One goroutine (Server.lead) owns the core. Around it: one goroutine that follows etcd, one for
// each worker's reports, and one for each job that is being registered in the log. Other goroutines
// ask the loop for the status (Server.Status). Any failure of etcd ends the term of leadership: a
// new one starts from the contents of etcd, and the workers do not notice.
package server
