// Package probe serves a process's health, readiness, metrics and profiles over HTTP.
package probe
