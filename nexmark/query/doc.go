// Package query defines NEXMark's queries 1 to 8 as jobs, one file each. Package oracle, which
// shares no code with them, defines their answers.
//
//	query  stages (│ = through the log)
//	1, 2   events │ bids: map, filter │ rows
//	3      events │ persons, auctions by seller │ join │ rows
//	4      events │ auctions, bids by auction: winner at its close │ mean by category │ rows
//	5      events │ count by auction and pane │ by auction: windows, best of a task │ by window: best │ rows
//	6      events │ as 4 │ mean of the last ten by seller │ rows
//	7      events │ highest by window of a task │ highest │ rows
//	8      events │ persons and sellers by id and window │ both │ rows
//
// (chained: the source runs in the first of these stages, and no events are in the log). Nine
// events in ten are bids; the queries drop the fields they do not need and pre-aggregate before
// events go through the log.
package query
