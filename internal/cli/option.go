package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/tasks/settings"
)

// IntOption defines the flag of an option that is a number.
func IntOption(f *pflag.FlagSet, p *int, o *settings.Option) {
	f.IntVar(p, o.Flag, int(o.Default), o.Help)
}

// DurationOption defines the flag of an option that is a duration.
func DurationOption(f *pflag.FlagSet, p *time.Duration, o *settings.Option) {
	f.DurationVar(p, o.Flag, time.Duration(o.Default), o.Help)
}

// SizeOption defines the flag of an option that is a number of bytes.
func SizeOption(f *pflag.FlagSet, p *int64, o *settings.Option) {
	*p = o.Default
	f.Var((*Size)(p), o.Flag, o.Help)
}

// WordOption defines the flag of an option that is a word.
func WordOption(f *pflag.FlagSet, p *string, o *settings.Option) {
	def := ""
	if len(o.Values) > 0 {
		def = o.Values[0]
	}
	f.StringVar(p, o.Flag, def, o.Help)
}

// ListOption defines the flag of an option that is a list of words.
func ListOption(f *pflag.FlagSet, p *[]string, o *settings.Option) {
	f.StringSliceVar(p, o.Flag, nil, o.Help)
}

// CheckOption returns a usage error if the value of an option's flag is out of bounds.
func CheckOption[T int | time.Duration](o *settings.Option, v T) error {
	if o.Check(int64(v)) == nil {
		return nil
	}
	return Usagef("--%s %v: at least %s, at most %s", o.Flag, v, short(fmt.Sprint(T(o.Low))), short(fmt.Sprint(T(o.High))))
}

// short returns 24h for 24h0m0s.
func short(d string) string {
	if strings.HasSuffix(d, "m0s") {
		d = strings.TrimSuffix(d, "0s")
	}
	if strings.HasSuffix(d, "h0m") {
		d = strings.TrimSuffix(d, "0m")
	}
	return d
}

// ChooseOption returns a usage error if the value of an option's flag is none of its words.
func ChooseOption(o *settings.Option, v string) error {
	if o.Choose(v) == nil {
		return nil
	}
	return Usagef("--%s %q: use %s", o.Flag, v, strings.Join(o.Values, " or "))
}
