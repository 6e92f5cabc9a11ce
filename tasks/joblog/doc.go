// Package joblog is the job log: it keeps the recent log entries of a process about its jobs, for
// tailrace job logs.
package joblog
