package progress

import (
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
)

// Gap is the error of a consumer that receives a record of a producer's commit, or its marker,
// without the marker of the commit before.
type Gap struct {
	Stage, Task   uint32        // the producer
	Commit, After uint64        // what was received, and the newest marker before it
	LSN           sharedlog.LSN // of the record; 0: it is the marker
}

// Error implements error.
func (g *Gap) Error() string {
	if g.LSN == 0 {
		return fmt.Sprintf("producer %d/%d: marker %d follows marker %d: %d commits are missing from the log", g.Stage, g.Task, g.Commit, g.After, g.Commit-g.After-1)
	}
	return fmt.Sprintf("producer %d/%d: data of commit %d at LSN %d follows marker %d: commits are missing from the log", g.Stage, g.Task, g.Commit, g.LSN, g.After)
}
