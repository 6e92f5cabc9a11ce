// Package process has the operator of a function with keyed state and timers (Op), and what the
// function knows while it is called (Call). Items may be held back and passed on in the order of their
// times. Package operators gives users a Context instead of a Call.
package process
