// Package source reads events into jobs: NEXMark's from JSON Lines files and from the generator, in
// their binary form (event.Raw), and items of any type that a workload makes. All can be read again
// from any position, so they are exactly-once sources.
//
//	source      partition          position                   watermark
//	Files       one file           bytes read, newest time    newest time − delay
//	Generated   every n-th round   events made, newest time   newest time − delay
//	Made        every n-th item,   next item, newest time     newest time − delay
//	            or by key
//
// The watermark of a partition that has not been opened is the beginning of time, and that of a
// task is the minimum over its partitions (pitfall T5).
package source
