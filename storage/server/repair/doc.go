// Package repair keeps the closed segments of a storage node intact. The scrubber reads them at a
// bounded rate and finds damage, and groups that differ from the other replicas; the mender rewrites
// damaged segments from the other replicas.
package repair
