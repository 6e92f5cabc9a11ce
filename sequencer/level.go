package sequencer

// Level is the feature level that this program supports. A cluster has a level of its own
// (State.Level). Entries and formats of a higher level are not used before every process supports
// it. So programs of two adjacent levels can run together, and an upgrade can be undone until the
// cluster's level is raised (docs/adr/0021).
//
//	level 1   the kinds cut … place
//	level 2   node, rescue, forget, level, sequencer; snapshots of version 2
//
// A new cluster starts at the level of the programs that form it.
const Level = 2
