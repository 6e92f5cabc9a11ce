// Package state has the tables of keyed state of operators, and what is derived from them.
//
//	Map, List            one value a key; any number of values a key, in the order of time
//	Maps                 a map of values a key: a Map of all entries, with a directory a key
//	Expiring             a Map whose values may end, a time after they were last written
//	PaneTable            the accumulators of windows, which package closing closes
//	Timers               timers that a function has set
//	Index                finds entries by key group and key; all tables are built on it
//
// Tables are exec.StateTables: each commit writes their changes to the change log, and Apply replays
// them. A table is in memory, or it uses an exec.Home (Spill): then its index is a cache of what the
// home has, and the files *_home.go have what differs. Answers and change logs are the same, byte
// for byte.
//
// A table is used by one goroutine. Keys are cloned when they are inserted; pointers into a table
// are valid until the entry is deleted or the task commits.
package state
