// Package storetest is the conformance suite of checkpoint stores.
package storetest
