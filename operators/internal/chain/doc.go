// Package chain runs the operators of a stage: a Chain is built for each task from what a stage of a
// job has, and the operators in it call each other with batches. The package has the ends of a chain
// (readers and writers of sections, sources, sinks) and knows no other operator.
//
// An operator receives batches (Emit) and passes its results on in a Buffer. If it does more, it
// implements some of the interfaces of chain.go and is registered with Chain.Add.
package chain

var (
	_ Resource   = (*sink[int])(nil)
	_ Positioned = (*sink[int])(nil)
	_ Holder     = (*sink[int])(nil)
	_ Resource   = (*source[int])(nil)
	_ Positioned = (*source[int])(nil)
	_ Flusher    = (*Spreader[int])(nil)
)
