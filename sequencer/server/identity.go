package server

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
)

// identity identifies the owner of a directory. It is stored in the file SEQUENCER:
//
//	tailrace sequencer, layout 1
//	ID
//	store, 16 hexadecimal digits
//	cluster's name
//	"new", "member" or "lost"
//
// The store id is a random number, drawn when the directory is created. "new" becomes "member" when
// the replica's log exists, and before the sequencer sends any message: a directory that says
// "member" and has no log has lost it. "lost" means that the directory was found to lack data that
// the sequencer had acknowledged.
type identity struct {
	id      uint64
	store   uint64
	cluster string
	member  bool
	lost    bool
}

const (
	identityName    = "SEQUENCER"
	identityVersion = "tailrace sequencer, layout 1"
)

func (i *identity) encode() []byte {
	state := "new"
	switch {
	case i.lost:
		state = "lost"
	case i.member:
		state = "member"
	}
	return fmt.Appendf(nil, "%s\n%d\n%016x\n%s\n%s\n", identityVersion, i.id, i.store, i.cluster, state)
}

func (i *identity) decode(path string, b []byte) error {
	lines := strings.Split(string(b), "\n")
	if lines[0] != identityVersion {
		return sharedlog.Errorf(sharedlog.KindVersion, "%s says %q, this program reads %q; use the program that wrote it", path, lines[0], identityVersion)
	}
	err := errors.New("it is cut short")
	if len(lines) == 6 {
		if i.id, err = strconv.ParseUint(lines[1], 10, 64); err == nil {
			i.store, err = strconv.ParseUint(lines[2], 16, 64)
		}
		i.cluster, i.member, i.lost = lines[3], lines[4] != "new", lines[4] == "lost"
	}
	if err != nil {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "%s: %v; the sequencer must be replaced (docs/operations.md)", path, err)
	}
	return nil
}

// readIdentity returns the identity in the options' directory, nil if there is none, and whether a
// replica's log exists.
func readIdentity(o *Options) (i *identity, log bool, err error) {
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, false, err
	}
	if log, err = replica.Exists(o.FS, o.Dir); err != nil {
		return nil, false, err
	}
	path := filepath.Join(o.Dir, identityName)
	b, err := vfs.ReadFile(o.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, log, nil
	}
	if err != nil {
		return nil, log, err
	}
	i = new(identity)
	if err := i.decode(path, b); err != nil {
		return nil, log, err
	}
	switch {
	case i.id != o.ID:
		err = sharedlog.Errorf(sharedlog.KindInvalid, "%s is the data of sequencer %d; it was started as sequencer %d", o.Dir, i.id, o.ID)
	case i.cluster != o.Cluster:
		err = sharedlog.Errorf(sharedlog.KindInvalid, "%s is the data of a sequencer of cluster %q; it was started in cluster %q", o.Dir, i.cluster, o.Cluster)
	case i.lost:
		err = errLost(i.id, errors.New("it was found before"))
	case i.member && !log:
		err = sharedlog.Errorf(sharedlog.KindCorrupt, "%s has lost its log (files wal-…): it must not continue without it; replace this sequencer by another one (docs/operations.md, Replacing a sequencer)", o.Dir)
	}
	return i, log, err
}

// errLost is the error of a sequencer that has lost data that it had acknowledged.
func errLost(id uint64, found error) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "sequencer %d has lost entries that it had acknowledged (%v): a power cut under --fsync interval, a directory from an older copy, or a disk that does not keep what was synced. "+
		"It must not vote again; replace it by another one (docs/operations.md, Replacing a sequencer)", id, found)
}

// identify returns the identity in the directory, and creates a new one where that is allowed.
func identify(o *Options) (i *identity, log bool, err error) {
	i, log, err = readIdentity(o)
	if err != nil {
		return nil, log, err
	}
	switch {
	case i != nil && i.member == log:
		return i, log, nil
	case i != nil: // it crashed before it wrote this
		i.member = true
	case log: // written by a program without store ids
		i = newIdentity(o)
		i.member = true
	case !o.Bootstrap && len(o.Join) == 0:
		return nil, false, sharedlog.Errorf(sharedlog.KindInvalid, "%s is empty. Is this a new cluster? Start all of its sequencers with --bootstrap. "+
			"Has sequencer %d lost its data? Then it must not come back under this number: start another one with --join, an empty directory and a number that was never used, "+
			"and see docs/operations.md, Replacing a sequencer", o.Dir, o.ID)
	default:
		i = newIdentity(o)
	}
	return i, log, i.write(o)
}

func newIdentity(o *Options) *identity {
	return &identity{id: o.ID, store: rand.Uint64()>>1 + 1, cluster: o.Cluster}
}

// write makes the identity durable.
func (i *identity) write(o *Options) error {
	path := filepath.Join(o.Dir, identityName)
	f, err := o.FS.Create(path + "-new")
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(i.encode(), 0); err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := o.FS.Rename(path+"-new", path); err != nil {
		return err
	}
	return o.FS.SyncDir(o.Dir)
}
