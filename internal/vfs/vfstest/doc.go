// Package vfstest damages files, for tests of their readers. The same random numbers and files give
// the same damage.
package vfstest
