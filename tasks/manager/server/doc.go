// Package server is the process around package manager: it campaigns in etcd, and while
// it leads it listens to the workers, feeds the core and carries out what that decides.
//
// One goroutine (Server.lead) owns the core. Around it: one goroutine that follows
// etcd, one for each worker's reports, and one for each job that is being registered in
// the log; whoever wants to know how things are asks it (Server.Status). Whatever goes
// wrong with etcd ends the reign: a new one begins from what etcd holds, and the workers
// know nothing of it.
package server
