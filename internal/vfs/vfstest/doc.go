// Package vfstest damages files, for tests of what reads them. It promises that the same
// random numbers and files give the same damage.
package vfstest
