package meta

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"tailrace.dev/tailrace/internal/transport"
)

// Options are the settings of Open.
type Options struct {
	Endpoints []string // HOST:PORT
	Cluster   string
	TLS       transport.TLS // for every connection, if enabled
}

// Store is a cluster's part of an etcd. Safe for concurrent use.
type Store struct {
	opt    Options
	c      *clientv3.Client
	prefix string
}

// patience is the timeout of one request to etcd.
const patience = 3 * time.Second

// Open returns a store; it does not wait for etcd (Check does).
func Open(o Options) (*Store, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("etcd: no address is known")
	}
	scheme := "http://"
	var config *tls.Config
	if o.TLS.On() {
		var err error
		if config, err = o.TLS.Config(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	var urls []string
	for _, e := range o.Endpoints {
		urls = append(urls, scheme+e)
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: urls, TLS: config, DialTimeout: patience,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
		BackoffWaitBetween: 20 * time.Millisecond,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 300 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ","), err)
	}
	return &Store{opt: o, c: c, prefix: "/tailrace/" + o.Cluster + "/"}, nil
}

// Close ends the connections.
func (s *Store) Close() error { return s.c.Close() }

func (s *Store) fail(what string, err error) error {
	return fmt.Errorf("etcd at %s: %s: %w", strings.Join(s.opt.Endpoints, ","), what, err)
}

// Check waits until etcd answers, or ctx ends.
func (s *Store) Check(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := s.c.Get(try, s.prefix+"cluster")
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return s.fail("it does not answer", err)
		}
	}
}

// ErrExists is in the error of Submit when a job of the name exists.
var ErrExists = errors.New("there is a job of that name")

// ErrNone is in the errors about a job that does not exist.
var ErrNone = errors.New("there is no such job (tailrace job list shows those that there are)")

// Submit adds a job. Nothing of a deleted job of its name remains: a manager may have written its state once more.
func (s *Store) Submit(ctx context.Context, j Job) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	key := s.prefix + "job/" + j.Spec.Name
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := s.c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(append(s.removes(j.Spec.Name), clientv3.OpPut(key, string(b)))...).Commit()
	switch {
	case err != nil:
		return s.fail("submit job "+j.Spec.Name, err)
	case !r.Succeeded:
		return fmt.Errorf("job %q: %w", j.Spec.Name, ErrExists)
	}
	return nil
}

// Change replaces a job by the result of change.
func (s *Store) Change(ctx context.Context, name string, change func(*Job) error) error {
	return s.act(ctx, name, "change", func(j *Job, _ *State) ([]clientv3.Op, error) {
		if err := change(j); err != nil {
			return nil, err
		}
		b, err := json.Marshal(j)
		return []clientv3.Op{clientv3.OpPut(s.prefix+"job/"+name, string(b))}, err
	})
}

// Mark says that a job is being deleted, unless refuse returns an error for what it is then.
func (s *Store) Mark(ctx context.Context, name string, refuse func(*Job, *State) error) (j Job, st State, err error) {
	err = s.act(ctx, name, "delete", func(now *Job, state *State) ([]clientv3.Op, error) {
		if err := refuse(now, state); err != nil {
			return nil, err
		}
		now.Deleted = true
		j, st = *now, *state
		b, err := json.Marshal(now)
		return []clientv3.Op{clientv3.OpPut(s.prefix+"job/"+name, string(b))}, err
	})
	return j, st, err
}

// Delete removes a job and its state and assignments, unless refuse returns an error for what it is then. The managers are told to remove
// what the log has under its id; "": nothing.
func (s *Store) Delete(ctx context.Context, name, id string, refuse func(*Job, *State) error) error {
	return s.act(ctx, name, "delete", func(j *Job, st *State) ([]clientv3.Op, error) {
		ops := append(s.removes(name), clientv3.OpDelete(s.prefix+"job/"+name))
		if id != "" {
			b, err := json.Marshal(Deleted{Spec: j.Spec})
			if err != nil {
				return nil, err
			}
			ops = append(ops, clientv3.OpPut(s.prefix+"deleted/"+id, string(b)))
		}
		return ops, refuse(j, st)
	})
}

// Cleared says that nothing of a deleted job is left.
func (s *Store) Cleared(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := s.c.Delete(ctx, s.prefix+"deleted/"+id); err != nil {
		return s.fail("job "+id+" is cleared", err)
	}
	return nil
}

// act writes what do returns, if a job and its state are still those that do was called with; otherwise it calls do again.
func (s *Store) act(ctx context.Context, name, what string, do func(*Job, *State) ([]clientv3.Op, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var j Job
		var st State
		var same []clientv3.Cmp
		keys := []string{s.prefix + "job/" + name, s.prefix + "state/" + name}
		r, err := s.c.Txn(ctx).Then(clientv3.OpGet(keys[0]), clientv3.OpGet(keys[1])).Commit()
		if err != nil {
			return s.fail("read job "+name, err)
		}
		for i, to := range []any{&j, &st} {
			kvs, revision := r.Responses[i].GetResponseRange().GetKvs(), int64(0)
			if i == 0 && len(kvs) == 0 {
				return fmt.Errorf("job %q: %w", name, ErrNone)
			}
			if len(kvs) > 0 {
				revision = kvs[0].ModRevision
				if err := json.Unmarshal(kvs[0].Value, to); err != nil {
					return s.fail(keys[i], err)
				}
			}
			same = append(same, clientv3.Compare(clientv3.ModRevision(keys[i]), "=", revision))
		}
		ops, err := do(&j, &st)
		if err != nil {
			return err
		}
		t, err := s.c.Txn(ctx).If(same...).Then(ops...).Commit()
		if err != nil {
			return s.fail(what+" job "+name, err)
		}
		if t.Succeeded {
			return nil
		}
	}
}

// Sweep removes the state and the assignments of a name that no job has: a manager has written them while the job was deleted.
func (s *Store) Sweep(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(s.prefix+"job/"+name), "=", 0)).Then(s.removes(name)...).Commit()
	if err != nil {
		return s.fail("remove what is left of job "+name, err)
	}
	return nil
}

// removes removes the state and the assignments of a job.
func (s *Store) removes(name string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpDelete(s.prefix + "state/" + name), clientv3.OpDelete(s.prefix+"task/"+name+"/", clientv3.WithPrefix())}
}

func taskPath(k TaskKey) string {
	return "task/" + k.Job + "/" + strconv.Itoa(k.Stage) + "/" + strconv.Itoa(k.Task)
}
