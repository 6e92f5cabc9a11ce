// Package words keeps what a process has said lately about its jobs, so that it can be
// asked for it (tailrace job logs).
package words
