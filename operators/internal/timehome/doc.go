// Package timehome stores entries of keyed state on disk in the order of time, those of all key groups
// together.
package timehome
