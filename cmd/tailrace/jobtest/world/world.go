package world

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Patience is how long anything without a limit of its own may take.
const Patience = 3 * time.Minute

// World is a cluster with etcd and managers.
type World struct {
	*proctest.Cluster
	// Store is the cluster's part of etcd.
	Store *meta.Store
}

// worlds are all that were started.
var worlds []*World

// tooShort is the panic of a step that needs a job that runs, and whose job has ended.
type tooShort string

// Lasting runs a story about a job that must not end before the story does. If it ends, because the
// machine is slow, the story starts over, with another cluster and a job that is four times as long:
// times is by how much longer than at first.
func Lasting(story func(times int)) {
	for times := 1; !told(story, times); times *= 4 {
		Expect(times).To(BeNumerically("<", 64), "the job ends before its story")
	}
}

func told(story func(times int), times int) (whole bool) {
	first := len(worlds)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooShort:
			fmt.Fprintln(GinkgoWriter, string(r))
			for _, w := range worlds[first:] {
				w.Stop()
			}
		default:
			panic(r) // not ours: ginkgo recovers it
		}
	}()
	story(times)
	return true
}

// ended reports whether the job has finished, as far as is known: etcd may be away.
func (w *World) ended(job string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	v, err := w.Store.Look(ctx)
	return err == nil && v.States[job].Phase == meta.Finished
}

// MustRun ends the story (Lasting) if the job has ended. Without etcd, a job whose rows do not depend on
// the time is known to have ended by the size of its output.
func (w *World) MustRun(j *Job) {
	ended := w.ended(j.Name)
	if !ended && w.PID("etcd") == 0 && j.Query != 4 && j.Query != 6 {
		want, err := os.Stat(j.Want())
		Expect(err).NotTo(HaveOccurred())
		got, err := os.Stat(j.Output)
		ended = err == nil && got.Size() == want.Size()
	}
	if ended {
		// Lasting recovers it.
		panic(tooShort(fmt.Sprintf("job %s has ended before its story", j.Name)))
	}
}

// Lasts ends the story (Lasting) if text, an error or what a command has said, is that a job or the stage of one has ended.
func Lasts(text string) {
	for _, over := range []string{rescale.ErrStageEnded.Error(), "is finished"} {
		if strings.Contains(text, over) {
			// Lasting recovers it.
			panic(tooShort(text))
		}
	}
}

// New starts a cluster with three sequencers, three storage nodes and two managers, which ends with the
// spec.
func New() *World { return NewSecure(transport.TLS{}) }

// NewSecure is New with TLS on every link.
func NewSecure(tls transport.TLS) *World { return NewWith(tls, "") }

// NewWith is NewSecure with the managers' --trim-interval; "" means that of proctest.
func NewWith(tls transport.TLS, trimInterval string) *World {
	w := &World{Cluster: proctest.StartTLS(GinkgoT(), Binaries, 3, tls)}
	w.TrimInterval = trimInterval
	worlds = append(worlds, w)
	w.StartJobs(2)
	var err error
	w.Store, err = meta.Open(meta.Options{Endpoints: []string{w.Etcd}, Cluster: proctest.Name, TLS: tls})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(w.Store.Close()).To(Succeed()) })
	return w
}
