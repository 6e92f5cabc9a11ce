// Package body is the encoding of a group: the same bytes on the wire, on a backup's
// disk and on its primary's, made once, by who appends.
//
//	body = head data
//	head = flags writer number key value { tags n{tag} length }     one a record
//	data = the records' data, one behind the other
//
// Numbers are uvarints, strings are their length and bytes; flags is a byte. Beside
// a body always stand its CRC32C, the length of its head and the number of its
// records: on disk in a frame's header (storage/segment), on the wire in Prefix.
package body
