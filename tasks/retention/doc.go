// Package retention decides how far the tags of a job may be trimmed, and trims them: what the
// newest markers in the log no longer need (Trimmer), except the change logs that an outside reader
// has a lease on (Hold). It knows a job by its layout and its log alone, so any process may trim.
package retention
