package embedded

// turn is a lock that goroutines may hold, and wait for, while time passes: it is a channel, so that the virtual time
// of tests passes, too. One value is its capacity.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }
