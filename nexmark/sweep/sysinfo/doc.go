// Package sysinfo describes the machine and the program that measure, for each row of a sweep. It reads
// /proc and the build's own information; what the operating system does not report is empty.
package sysinfo
