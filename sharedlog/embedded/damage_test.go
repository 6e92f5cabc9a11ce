package embedded_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/internal/vfs/vfstest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

const segments = "log/segments"

// closedLog is a log that was closed normally: shards of several segments, some of which were
// trimmed and deleted.
type closedLog struct {
	disk    *vfs.Mem
	records map[sharedlog.LSN]string // the remaining records of the tag "all"
	first   sharedlog.LSN            // the lowest of their LSNs
	tail    sharedlog.LSN
	file    map[sharedlog.LSN]string // the file of each record
}

var smallSegments = embedded.Options{Fsync: embedded.FsyncInterval, SegmentBytes: 4 << 10, CacheBytes: 1, Logger: quiet}

func newClosedLog(t testing.TB) *closedLog {
	c := &closedLog{disk: vfs.NewMem(), records: map[sharedlog.LSN]string{}, file: map[sharedlog.LSN]string{}}
	n := 0
	for round := range 4 {
		l := c.open(t, c.disk)
		w := sharedlog.NewWriter(l, fmt.Sprint("w", round), sharedlog.Condition{})
		for range 12 {
			n++
			data := bytes.Repeat(fmt.Append(nil, n, " "), 400)
			lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all", sharedlog.Tag(fmt.Sprint("mod", n%3))}, Data: data}).Wait(t.Context())
			require.NoError(t, err)
			c.records[lsn] = string(data)
		}
		if round == 1 { // trim a part of the first shard
			gone := c.files(t)[0]
			c.first = 8
			for _, tag := range []sharedlog.Tag{"all", "mod0", "mod1", "mod2"} {
				require.NoError(t, l.Trim(t.Context(), tag, c.first))
			}
			require.Eventually(t, func() bool { return !slices.Contains(c.files(t), gone) }, time.Minute, time.Millisecond)
		}
		var err error
		c.tail, err = l.Tail(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	l := c.open(t, c.disk) // closes the last shard's segments
	require.NoError(t, l.Close())
	require.NoError(t, c.disk.Remove("log/BALLAST")) // otherwise every round would copy it
	for lsn := range c.records {
		if lsn < c.first {
			delete(c.records, lsn)
		}
	}
	s, err := segment.Open(c.disk.KillClone(), segments, segment.Options{Listed: true})
	require.NoError(t, err)
	for _, info := range s.Segments() {
		if info.State != segment.StateClosed {
			continue
		}
		b, err := s.Footer(info.ID)
		require.NoError(t, err)
		p, err := tagindex.ParseFooter(info.ID, b)
		require.NoError(t, err)
		for lsn := info.Extent.First; lsn < info.Extent.End; lsn++ {
			c.file[lsn] = filepath.Join(segments, info.ID.String()+".seg")
		}
		require.Positive(t, p.Len())
	}
	return c
}

func (c *closedLog) open(t testing.TB, disk vfs.FS) *embedded.Log {
	o := smallSegments
	o.FS = disk
	l, err := embedded.Open("log", o)
	require.NoError(t, err)
	return l
}

// files returns the paths of the segments' files.
func (c *closedLog) files(t testing.TB) (paths []string) {
	names, err := c.disk.List(segments)
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".seg") {
			paths = append(paths, filepath.Join(segments, name))
		}
	}
	return paths
}

// read returns the entries of a reader of a tag, and the error that ended it.
func (c *closedLog) read(t testing.TB, l sharedlog.Log, tag sharedlog.Tag, from, until sharedlog.LSN) (map[sharedlog.LSN]string, error) {
	r, err := l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: from, Until: until})
	require.NoError(t, err)
	defer r.Close()
	seen := map[sharedlog.LSN]string{}
	for {
		b, err := r.Next(t.Context())
		if err != nil {
			return seen, err
		}
		for _, e := range b.Entries {
			seen[e.LSN] = string(e.Data)
		}
	}
}

// check reads the log in several ways: each reader returns everything, or everything before damage
// and then an error that names a file. Records in undamaged files can be read. It returns how many
// records cannot.
func (c *closedLog) check(t testing.TB, l sharedlog.Log, damaged []string, what string) (lost int) {
	for i, tag := range []sharedlog.Tag{"all", "mod0", "mod1", "mod2"} {
		seen, err := c.read(t, l, tag, c.first, c.tail)
		end := c.tail // below it nothing may be missing
		if err != io.EOF {
			c.damage(t, err, damaged, what)
			end = c.first
			for lsn := range seen {
				end = max(end, lsn)
			}
		}
		for lsn, data := range seen {
			require.Equal(t, c.records[lsn], data, what)
		}
		if i > 0 {
			continue
		}
		for lsn := range c.records {
			if _, ok := seen[lsn]; !ok && lsn < end {
				t.Fatalf("%s: a reader was not shown %d, and then %v", what, lsn, err)
			}
		}
	}
	for lsn, data := range c.records {
		seen, err := c.read(t, l, "all", lsn, lsn+1)
		if err == io.EOF {
			require.Equal(t, map[sharedlog.LSN]string{lsn: data}, seen, what)
			continue
		}
		lost++
		c.damage(t, err, damaged, what)
		require.Contains(t, damaged, c.file[lsn], "%s: record %d is in %s: %v", what, lsn, c.file[lsn], err)
	}
	return lost
}

func (c *closedLog) damage(t testing.TB, err error, damaged []string, what string) {
	require.ErrorIs(t, err, sharedlog.ErrCorrupt, what)
	require.Contains(t, err.Error(), ", offset ", what)
	require.True(t, slices.ContainsFunc(damaged, func(f string) bool { return strings.Contains(err.Error(), f) }), "%s: %v", what, err)
}

func flipped(b []byte, off int) []byte {
	if off < 0 {
		off += len(b)
	}
	b[off] ^= 1
	return b
}

// A closed segment is damaged while the log is not open: no record or file vanishes silently.
func TestDamagedClosedSegment(t *testing.T) {
	c := newClosedLog(t)
	files := c.files(t)
	for name, d := range map[string]struct {
		damage func(b []byte) []byte
		lost   bool
	}{
		"header":    {func(b []byte) []byte { return flipped(b, 9) }, false},
		"number":    {func(b []byte) []byte { return flipped(b, 16) }, false},
		"salt":      {func(b []byte) []byte { return flipped(b, 25) }, false},
		"trailer":   {func(b []byte) []byte { return flipped(b, -20) }, false},
		"cut":       {func(b []byte) []byte { return b[:len(b)-7] }, false},
		"frame":     {func(b []byte) []byte { return flipped(b, 100) }, true},
		"footer":    {func(b []byte) []byte { return flipped(b, -45) }, true},
		"truncated": {func(b []byte) []byte { return b[:len(b)/2] }, true},
		"missing":   {nil, true},
	} {
		for _, file := range []string{files[1], files[len(files)/2]} {
			what := name + " of " + file
			disk := c.disk.KillClone()
			if d.damage == nil {
				require.NoError(t, disk.Remove(file))
			} else {
				vfstest.Write(t, disk, file, d.damage(vfstest.Read(t, disk, file)))
			}
			for range 2 { // the second Open reports the same
				l := c.open(t, disk)
				require.Equal(t, d.lost, c.check(t, l, []string{file}, what) > 0, what)
				_, err := sharedlog.NewWriter(l, "new", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"other"}}).Wait(t.Context())
				require.NoError(t, err, "%s: appends succeed", what)
				require.NoError(t, l.Close())
				if d.damage != nil {
					_, err := disk.Stat(file)
					require.NoError(t, err, "%s: the file has gone", what)
				}
			}
			if d.lost { // restore it from a copy
				vfstest.Write(t, disk, file, vfstest.Read(t, c.disk, file))
				l := c.open(t, disk)
				require.Zero(t, c.check(t, l, nil, what))
				require.NoError(t, l.Close())
			}
		}
	}
}

// The same on a real disk, where the catalogue knows which tags the segment had: readers of other
// tags are not affected.
func TestDamagedClosedSegmentOnDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	o := smallSegments
	l, err := embedded.Open("log", o)
	require.NoError(t, err)
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	for i := range 40 {
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all", sharedlog.Tag(fmt.Sprint("tenth", i/10))}, Data: make([]byte, 1000)}).Wait(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	l, err = embedded.Open("log", o)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	files, err := filepath.Glob(segments + "/00000001-*.seg")
	require.NoError(t, err)
	require.Greater(t, len(files), 4)
	require.NoError(t, os.Remove(files[1]))
	l, err = embedded.Open("log", o)
	require.NoError(t, err)
	c := &closedLog{}
	seen, err := c.read(t, l, "all", 1, 41)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, files[1])
	require.Less(t, len(seen), 11)
	_, err = c.read(t, l, "tenth0", 1, 41)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	seen, err = c.read(t, l, "tenth3", 1, 41)
	require.Equal(t, io.EOF, err)
	require.Len(t, seen, 10)
	require.NoError(t, l.Close())
}

// A directory of the previous layout gets a list; what was damaged in it before stays damage.
func TestOlderLayout(t *testing.T) {
	c := newClosedLog(t)
	for _, name := range []string{"LIST-1", "LIST-2"} {
		require.NoError(t, c.disk.Remove(filepath.Join(segments, name)))
	}
	vfstest.Write(t, c.disk, "log/VERSION", []byte("tailrace embedded log, layout 1\n"))
	file := c.files(t)[1]
	for name, damage := range map[string]func(b []byte) []byte{
		"":        func(b []byte) []byte { return b },
		"header":  func(b []byte) []byte { return flipped(b, 9) },
		"trailer": func(b []byte) []byte { return flipped(b, -20) },
		"footer":  func(b []byte) []byte { return flipped(b, -45) },
	} {
		disk := c.disk.KillClone()
		vfstest.Write(t, disk, file, damage(vfstest.Read(t, disk, file)))
		for range 2 {
			l := c.open(t, disk)
			require.Equal(t, name != "", c.check(t, l, []string{file}, name) > 0, name)
			require.NoError(t, l.Close())
			require.Equal(t, "tailrace embedded log, layout 2\n", string(vfstest.Read(t, disk, "log/VERSION")))
		}
		_, err := disk.Stat(file)
		require.NoError(t, err)
	}
	l := c.open(t, c.disk)
	require.NoError(t, l.Close())
	require.NoError(t, c.disk.Remove(file))
	l = c.open(t, c.disk)
	require.Positive(t, c.check(t, l, []string{file}, "missing"))
	require.NoError(t, l.Close())
}

// A log whose layout is unknown, or of another program, is refused, and stays as it is.
func TestUnknownLayout(t *testing.T) {
	c := newClosedLog(t)
	for content, want := range map[string]string{
		"tailrace embedded log, layout 9\n": `says "tailrace embedded log, layout 9", this program reads "tailrace embedded log, layout 2"; use the program that wrote it`,
		"":                                  `put it back from a copy of the directory, or write "tailrace embedded log, layout 2\n" to it`,
		"none":                              `put it back from a copy of the directory, or write "tailrace embedded log, layout 2\n" to it`,
	} {
		disk := c.disk.KillClone()
		if content == "none" {
			require.NoError(t, disk.Remove("log/VERSION"))
		} else {
			vfstest.Write(t, disk, "log/VERSION", []byte(content))
		}
		o := smallSegments
		o.FS = disk
		_, err := embedded.Open("log", o)
		require.ErrorIs(t, err, sharedlog.ErrVersion, content)
		require.ErrorContains(t, err, want)
		vfstest.Write(t, disk, "log/VERSION", []byte("tailrace embedded log, layout 2\n"))
		l := c.open(t, disk)
		require.Zero(t, c.check(t, l, nil, content))
		require.NoError(t, l.Close())
	}
}

// TestRandomDamage damages a random file of a closed log: a byte, its end, its name, or all of it.
// In each case the log reports it or shows everything.
func TestRandomDamage(t *testing.T) {
	rounds := 500
	if os.Getenv("TAILRACE_SOAK") != "" {
		rounds = 200_000
	}
	c := newClosedLog(t)
	var names []string // the files that hold records
	var full [][]byte
	for _, path := range c.files(t) {
		if slices.Contains(slices.Collect(maps.Values(c.file)), path) {
			names, full = append(names, path), append(full, vfstest.Read(t, c.disk, path))
		}
	}
	refused, lost := 0, 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 15))
		disk := c.disk.KillClone()
		paths := slices.DeleteFunc(everyFile(t, disk, "log", segments), func(p string) bool { return strings.Contains(p, "spare") })
		what, damaged := vfstest.Damage(t, rng, disk, paths)
		what = fmt.Sprintf("seed %d: %s", seed, what)
		held := map[string][]byte{}
		for _, path := range everyFile(t, disk, segments) {
			held[path] = vfstest.Read(t, disk, path)
		}
		o := smallSegments
		o.FS = disk
		l, err := embedded.Open("log", o)
		if err != nil { // the order cannot be computed
			kind := sharedlog.KindOf(err)
			require.True(t, kind == sharedlog.KindCorrupt || kind == sharedlog.KindVersion, "%s: %v", what, err)
			require.Contains(t, err.Error(), "log", what)
			refused++
			require.True(t, slices.ContainsFunc(damaged, func(p string) bool { return !strings.HasSuffix(p, ".seg") }), "%s: %v", what, err)
		} else {
			if c.check(t, l, damaged, what) > 0 {
				lost++
			}
			require.NoError(t, l.Close())
		}
		for path, b := range held {
			holds := slices.ContainsFunc(full, func(f []byte) bool { return bytes.Equal(f, b) })
			if !slices.Contains(names, path) && (!holds || !strings.HasSuffix(path, ".seg")) {
				continue // the file was empty
			}
			if _, err := disk.Stat(path); err != nil {
				b2 := vfstest.Read(t, disk, path+"-damaged")
				require.Equal(t, b, b2, what)
			}
		}
	}
	t.Logf("%d rounds: %d not opened, %d with records that cannot be read", rounds, refused, lost)
	require.NotZero(t, lost)
}

func everyFile(t testing.TB, disk vfs.FS, dirs ...string) (paths []string) {
	for _, dir := range dirs {
		names, err := disk.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}
