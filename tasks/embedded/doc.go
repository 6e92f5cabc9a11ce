// Package embedded runs all tasks of a job in one process, and restarts, savepoints and rescales them
// there. A cluster's manager and workers do the same with tasks in several processes (packages
// manager and worker).
package embedded
