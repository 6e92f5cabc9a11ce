package faulttest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/cmd/tailrace/internal/role"
	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/worker"
)

// points are the points of a rescale that a worker comes to.
var points = append(slices.Concat(walk.OfCopies(), walk.OfStandbys()), walk.At(observe.RescaleSilent), walk.At(observe.RescaleReleasing), walk.At(observe.RescaleReleased),
	walk.At(observe.RescaleTaking), walk.At(observe.RescaleTaken))

// sourcesPoints are those of them that a rescale by partitions comes to, of a stage without state.
var sourcesPoints = []crash.Point{
	walk.At(observe.RescaleAsking), walk.At(observe.RescaleSilent), walk.At(observe.RescaleReleasing), walk.At(observe.RescaleReleased),
	walk.At(observe.RescaleTaking), walk.At(observe.RescaleTaken),
}

// managersPoints are the points that the leading manager comes to.
var managersPoints = []crash.Point{walk.At(observe.RescalePlanning), walk.At(observe.RescalePlanned), walk.At(observe.RescaleSettled)}

// TestMain runs the tests, or, as the first argument says, a worker for the queries of NEXMark, or a manager,
// which kills itself at a point.
func TestMain(m *testing.M) {
	run := map[string]func(ctx context.Context, args []string) error{"worker": runWorker, "manager": runManager}
	if len(os.Args) < 2 || run[os.Args[1]] == nil {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runWorker(ctx context.Context, args []string) error {
	o := worker.Options{Program: driver.Program, Build: driver.Build, Version: driver.Version(), Observer: walk.Observe}
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	o.Flags(flags)
	flags.String("log-level", "", "")
	point := flags.String("point", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	crash.Arm(crash.Point(*point), 1)
	return worker.Run(ctx, o)
}

func runManager(ctx context.Context, args []string) error {
	cmd := role.Manager(walk.Observe)
	point := cmd.Flags().String("point", "", "")
	cmd.PreRun = func(*cobra.Command, []string) { crash.Arm(crash.Point(*point), 1) }
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// managerKilledAt rescales a job, and the manager that leads dies when it comes to a point of that. Another
// one resumes: the goal is reached, and so is the next one.
func managerKilledAt(of scaled, point crash.Point, protocol string, times int) {
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	w := world.New()
	w.ManagerOf(&proctest.Binaries{Tailrace: self}, "armed", "--point", string(point))
	w.Kill("manager0")
	w.Kill("manager1")
	leader := func() string {
		v, err := w.View()
		Expect(err).NotTo(HaveOccurred())
		return v.Manager.Name
	}
	Eventually(leader, world.Patience, 10*time.Millisecond).Should(Equal("armed"))
	w.Restart("manager0")
	w.Worker("w0")
	w.Worker("w1")
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Query: 3, Events: 100_000 * times, Rate: 10_000, Protocol: protocol, More: of.more})
	w.Grown(j, 2000)
	request := ask(w, j, of, 6)
	Eventually(func() int { return w.PID("armed") }, world.Patience, 10*time.Millisecond).Should(BeZero(), "it never came there")
	w.Died("armed")
	reached(w, j, of, request, 6)
	reached(w, j, of, ask(w, j, of, 1), 1)
	w.Finish(j)
	j.Right()
}

// killedAt rescales a job, and one of its two workers dies when it comes to a point of that. Another one
// replaces it: the goal is reached, and so is the next one.
func killedAt(of scaled, point crash.Point, protocol string, times int) {
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	w := world.New()
	w.WorkerOf(&proctest.Binaries{Nexmark: self}, "w0", "--point", string(point))
	w.Worker("w1")
	w.Workers(2)
	more := of.more
	if slices.Contains(walk.OfStandbys(), point) {
		more += " --standbys 1"
	}
	j := w.Submit(world.Job{Name: "job", Query: 3, Events: 100_000 * times, Rate: 10_000, Protocol: protocol, More: more})
	w.Grown(j, 2000)
	if slices.Contains(walk.OfStandbys(), point) {
		w.Copies(j)
	}
	request := ask(w, j, of, 6)
	Eventually(func() int { return w.PID("w0") }, world.Patience, 10*time.Millisecond).Should(BeZero(), "it never came there")
	w.Died("w0")
	w.Worker("w2")
	reached(w, j, of, request, 6)
	reached(w, j, of, ask(w, j, of, 1), 1)
	w.Finish(j)
	j.Right()
}
