// Package join has the state of joins: items that wait for a partner, the versions of a table, and a
// table that each key group has a copy of. Package operators adds joins to a job.
package join
