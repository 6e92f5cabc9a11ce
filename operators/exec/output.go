package exec

import (
	"fmt"
	"math"
)

// Output collects the encoded items of one output of one task until the task
// flushes them. Only operators append: an operator takes the section of the item's key group,
// appends the item's bytes and counts it with Add.
type Output struct {
	sections []Section
	touched  []int
	bytes    int
	gone     int // bytes that were removed by Reset
	limits   Limits
	router   Router
	err      error // why Full could not take the contents
}

// Limits bound the size of an Output.
type Limits struct {
	// Bytes: when this many are pending, Full is called. It takes the contents and calls Reset. A
	// larger item is then alone in the Output.
	Bytes int
	Full  func() error
	// Item is the largest size of an item in bytes.
	Item int
}

// Section is the pending items of one key group.
type Section struct {
	Group int
	Items int
	Data  []byte
	// Last is scratch for the operator that writes the section (the previous
	// item's time, for delta encoding); 0 in an empty section.
	Last int64
}

// NewOutput returns the buffers for a stream of the given number of key groups.
func NewOutput(groups int) *Output {
	o := &Output{sections: make([]Section, groups), limits: Limits{Bytes: math.MaxInt, Item: math.MaxInt}}
	for i := range o.sections {
		o.sections[i].Group = i
	}
	return o
}

// Router says which key group a key of a stream is in, given its hash (HashKey) and its bytes.
type Router interface {
	Group(hash uint64, key []byte) int
}

// Route sets what routes the items that are added from now on; nil: GroupOf does.
func (o *Output) Route(r Router) { o.router = r }

// Router returns what routes items, nil: GroupOf does.
func (o *Output) Router() Router { return o.router }

// Limit sets the limits of an empty Output.
func (o *Output) Limit(l Limits) { o.limits = l }

// Section returns the section of a key group, to append to its Data; call Add
// with it after each item.
func (o *Output) Section(group int) *Section { return &o.sections[group] }

// Add counts one item that was just appended to s, n bytes long.
func (o *Output) Add(s *Section, n int) {
	if s.Items == 0 {
		o.touched = append(o.touched, s.Group)
	}
	s.Items++
	o.bytes += n
}

// Over reports whether Full has to be called: the code that has added an item does so, with
// MakeRoom or AddChange.
func (o *Output) Over() bool { return o.bytes >= o.limits.Bytes }

// takeBack removes the last item added, n bytes long, and returns its bytes. They are valid until
// the next item is added.
func (o *Output) takeBack(s *Section, n int) []byte {
	if s.Items--; s.Items == 0 {
		o.touched = o.touched[:len(o.touched)-1]
		s.Last = 0
	}
	o.bytes -= n
	all := s.Data
	s.Data = all[:len(all)-n]
	return all[len(all)-n:]
}

// MakeRoom makes room after an item of n bytes was added to s, behind others. again writes the item
// again, into an empty section, if it has to be alone.
func (o *Output) MakeRoom(s *Section, n int, again func() (n int)) error {
	switch {
	case n > o.limits.Item:
		o.takeBack(s, n)
		return &TooLargeError{Bytes: n, Most: o.limits.Item}
	case n >= o.limits.Bytes && o.bytes > n:
		o.takeBack(s, n)
		if err := o.call(); err != nil {
			return err
		}
		o.Add(s, again())
	}
	return o.call()
}

func (o *Output) call() error {
	err := o.limits.Full()
	if err != nil && o.err == nil {
		o.err = err
	}
	if o.bytes > 0 { // it could not be taken: the task ends
		o.Reset()
	}
	return err
}

// AddChange is Add for items that do not depend on earlier ones in their section, such as those of
// change logs. Err returns whether they could be taken.
func (o *Output) AddChange(s *Section, n int) {
	o.Add(s, n)
	if !o.Over() {
		return
	}
	var item []byte
	if n >= o.limits.Bytes {
		item = append(item, s.Data[len(s.Data)-n:]...)
	}
	err := o.MakeRoom(s, n, func() int {
		s.Data = append(s.Data, item...)
		return n
	})
	if large, ok := err.(*TooLargeError); ok { // as created in this method
		large.Group, large.Item = s.Group, item
		if o.err == nil {
			o.err = err
		}
	}
}

// Err returns the first error of Full, or the error of an item of a change log that is too large.
func (o *Output) Err() error { return o.err }

// TooLargeError says that one item is larger than a group of the log may be.
type TooLargeError struct {
	Bytes, Most int
	// Group is the key group. Item is the item, if it is one of a change log.
	Group int
	Item  []byte
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the item has %d bytes, a group of the log holds at most %d of one item: store large values elsewhere and send a reference, or skip such items (--on-error)", e.Bytes, e.Most)
}

// Bytes returns how many bytes of items are pending in all sections.
func (o *Output) Bytes() int { return o.bytes }

// Total returns how many bytes of items have ever been added.
func (o *Output) Total() int { return o.gone + o.bytes }

// Touched returns the key groups with pending items, in the order in which they
// were first touched. The slice is the output's own.
func (o *Output) Touched() []int { return o.touched }

// Reset empties all sections, keeping their buffers.
func (o *Output) Reset() {
	for _, g := range o.touched {
		s := &o.sections[g]
		s.Items, s.Data, s.Last = 0, s.Data[:0], 0
	}
	o.gone += o.bytes
	o.touched, o.bytes = o.touched[:0], 0
}
