package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"

	"github.com/spf13/pflag"
)

// profiles holds the flags that select the profiles of a measurement and their directory.
type profiles struct{ dir string }

func (p *profiles) flags(f *pflag.FlagSet) {
	f.StringVar(&p.dir, "profile", "", "write cpu, heap, allocs, block, mutex profiles (go tool pprof) and a trace of one second (go tool trace) of the measured time into this directory")
}

// start starts profiling; the returned function stops it and writes the files. Without a directory
// both do nothing. Blocks and mutexes are sampled (every 100 µs of waiting, every hundredth
// contention), so that profiling does not distort the measurement.
func (p *profiles) start() (stop func() error, err error) {
	if p.dir == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	cpu, err := os.Create(filepath.Join(p.dir, "cpu.pprof"))
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	runtime.SetBlockProfileRate(100_000)
	runtime.SetMutexProfileFraction(100)
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{})
	if err := errors.Join(pprof.StartCPUProfile(cpu), recorder.Start()); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		errs := []error{cpu.Close(), p.write("trace.out", func(f *os.File) error {
			_, err := recorder.WriteTo(f)
			return err
		})}
		recorder.Stop()
		for _, name := range []string{"heap", "allocs", "block", "mutex"} {
			errs = append(errs, p.write(name+".pprof", func(f *os.File) error { return pprof.Lookup(name).WriteTo(f, 0) }))
		}
		return errors.Join(errs...)
	}, nil
}

func (p *profiles) write(name string, to func(*os.File) error) error {
	f, err := os.Create(filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	return errors.Join(to(f), f.Close())
}
