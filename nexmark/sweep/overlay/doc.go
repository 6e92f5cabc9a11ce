// Package overlay reads the results of other systems that a report shows beside its own: the JSON lines
// that the harnesses of the Kafka Streams peer and of the Flink peer print. A file without any is an error.
package overlay
