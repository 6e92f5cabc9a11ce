package sequencer

// Level is the feature level that this program speaks. A cluster has a level of its
// own (State.Level): entries and formats of a higher one are not used before every
// process speaks it, so that programs of two neighbouring levels run together, and
// an upgrade can be taken back until the cluster's level is raised (docs/adr/0021).
//
//	level 1   the kinds cut … place
//	level 2   node, rescue, forget, level, sequencer; snapshots of version 2
//
// A new cluster begins at the level of the programs that it begins with.
const Level = 2
