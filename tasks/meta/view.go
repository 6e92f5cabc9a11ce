package meta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Look reads everything once.
func (s *Store) Look(ctx context.Context) (View, error) {
	v, _, err := s.look(ctx)
	return v.clone(), err
}

func (s *Store) look(ctx context.Context) (*View, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v := newView()
	r, err := s.c.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return v, 0, s.fail("read", err)
	}
	for _, kv := range r.Kvs {
		if err := v.put(strings.TrimPrefix(string(kv.Key), s.prefix), kv.Value); err != nil {
			return v, 0, s.fail(string(kv.Key), err)
		}
	}
	return v, r.Header.Revision, nil
}

// Follow calls f with a View now and whenever anything has changed, until ctx ends. It skips times
// without etcd; trouble, if not nil, is called when one begins (with an error) and when it ends
// (with nil).
func (s *Store) Follow(ctx context.Context, f func(View), trouble func(error)) {
	tell := func(err error) {
		if trouble != nil && ctx.Err() == nil {
			trouble(err)
		}
	}
	for ctx.Err() == nil {
		v, rev, err := s.look(ctx)
		if err == nil {
			tell(nil)
			f(v.clone())
			err = s.watch(ctx, v, rev, f)
		}
		tell(err)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Store) watch(ctx context.Context, v *View, rev int64, f func(View)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range s.c.Watch(clientv3.WithRequireLeader(ctx), s.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)) {
		if err := r.Err(); err != nil {
			return s.fail("watch", err)
		}
		for _, e := range r.Events {
			path := strings.TrimPrefix(string(e.Kv.Key), s.prefix)
			if e.Type == mvccpb.DELETE {
				if strings.HasPrefix(path, "manager/") {
					// The next candidate's key is older than the deleted one.
					return errors.New("the manager has left")
				}
				v.delete(path)
				continue
			}
			if err := v.put(path, e.Kv.Value); err != nil {
				return s.fail(string(e.Kv.Key), err)
			}
		}
		if len(r.Events) > 0 {
			f(v.clone())
		}
	}
	return s.fail("watch", errors.New("it has ended"))
}

func newView() *View {
	return &View{Jobs: map[string]Job{}, States: map[string]State{}, Workers: map[string]Worker{}, Tasks: map[TaskKey]Assignment{}, Deleted: map[string]Deleted{}}
}

func (v *View) clone() View {
	c := *v
	c.Jobs, c.States, c.Workers, c.Tasks, c.Deleted = maps.Clone(v.Jobs), maps.Clone(v.States), maps.Clone(v.Workers), maps.Clone(v.Tasks), maps.Clone(v.Deleted)
	return c
}

// put sets one key. The first manager's key wins: keys come in the order of their creation, and the
// oldest leads.
func (v *View) put(path string, value []byte) error {
	kind, name, _ := strings.Cut(path, "/")
	switch kind {
	case "cluster":
		return json.Unmarshal(value, &v.Cluster)
	case "job":
		return into(v.Jobs, name, value)
	case "state":
		return into(v.States, name, value)
	case "worker":
		return into(v.Workers, name, value)
	case "deleted":
		return into(v.Deleted, name, value)
	case "task":
		var a Assignment
		if err := json.Unmarshal(value, &a); err != nil {
			return err
		}
		v.Tasks[a.Key()] = a
	case "manager":
		if v.Manager == (Manager{}) && len(bytes.TrimSpace(value)) > 0 {
			return json.Unmarshal(value, &v.Manager)
		}
	}
	return nil
}

func into[T any](m map[string]T, name string, value []byte) error {
	var t T
	if err := json.Unmarshal(value, &t); err != nil {
		return err
	}
	m[name] = t
	return nil
}

func (v *View) delete(path string) {
	kind, name, _ := strings.Cut(path, "/")
	switch kind {
	case "cluster":
		v.Cluster = Cluster{}
	case "job":
		delete(v.Jobs, name)
	case "state":
		delete(v.States, name)
	case "worker":
		delete(v.Workers, name)
	case "deleted":
		delete(v.Deleted, name)
	case "task":
		for k := range v.Tasks {
			if taskPath(k) == path {
				delete(v.Tasks, k)
			}
		}
	}
}
