package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/tasks/settings"
)

// IntOption defines the flag of an option that is a number.
func IntOption(f *pflag.FlagSet, p *int, o *settings.Option) {
	f.IntVar(p, o.Flag, int(o.Default), o.Help)
	mark(f, o)
}

// DurationOption defines the flag of an option that is a duration.
func DurationOption(f *pflag.FlagSet, p *time.Duration, o *settings.Option) {
	f.DurationVar(p, o.Flag, time.Duration(o.Default), o.Help)
	mark(f, o)
}

// SizeOption defines the flag of an option that is a number of bytes.
func SizeOption(f *pflag.FlagSet, p *int64, o *settings.Option) {
	*p = o.Default
	f.Var((*Size)(p), o.Flag, o.Help)
	mark(f, o)
}

// WordOption defines the flag of an option that is a word.
func WordOption(f *pflag.FlagSet, p *string, o *settings.Option) {
	def := ""
	if len(o.Values) > 0 {
		def = o.Values[0]
	}
	f.StringVar(p, o.Flag, def, o.Help)
	mark(f, o)
}

// ListOption defines the flag of an option that is a list of words.
func ListOption(f *pflag.FlagSet, p *[]string, o *settings.Option) {
	f.StringSliceVar(p, o.Flag, nil, o.Help)
}

// optionOf is the annotation of a flag that one of these functions has defined.
const optionOf = "tailrace_option"

func mark(f *pflag.FlagSet, o *settings.Option) {
	f.Lookup(o.Flag).Annotations = map[string][]string{optionOf: {o.Name}}
}

// CheckOptions returns a usage error if the value of an option's flag is out of bounds, or is none
// of its words. Prepare calls it before each command.
func CheckOptions(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Annotations[optionOf] == nil {
			return
		}
		i := slices.IndexFunc(settings.All(), func(o *settings.Option) bool { return o.Flag == f.Name })
		err = check(settings.All()[i], f.Value)
	})
	return err
}

func check(o *settings.Option, of pflag.Value) error {
	if len(o.Values) > 0 && o.Choose(of.String()) != nil {
		return Usagef("--%s %q: use %s", o.Flag, of, strings.Join(o.Values, " or "))
	}
	if o.High == 0 {
		return nil
	}
	v, show := number(of)
	switch {
	case v == 0 && o.Default == 0: // the program computes the default
	case o.Least != 0 && v != o.Unbounded && (v < o.Least || v > o.High):
		return Usagef("--%s %v: at least %s, or %d for no bound", o.Flag, of, show(o.Least), o.Unbounded)
	case o.Least == 0 && o.Check(v) != nil:
		return Usagef("--%s %v: at least %s, at most %s", o.Flag, of, show(o.Low), show(o.High))
	}
	return nil
}

// number returns the number that a flag holds, and how the flag shows numbers.
func number(v pflag.Value) (n int64, show func(int64) string) {
	if size, ok := v.(*Size); ok {
		return int64(*size), func(n int64) string { return (*Size)(&n).String() }
	}
	if d, err := time.ParseDuration(v.String()); err == nil && v.Type() == "duration" {
		return int64(d), func(n int64) string { return short(time.Duration(n).String()) }
	}
	n, _ = strconv.ParseInt(v.String(), 10, 64) // of an int
	return n, func(n int64) string { return strconv.FormatInt(n, 10) }
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
