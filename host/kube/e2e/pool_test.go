package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// clusters is how many there are. Much of a test is waiting for what kubelet and controllers do at their own pace, and others can work meanwhile.
var clusters = flag.Int("clusters", 4, "how many clusters the tests have among them, each its own for as long as it takes")

// folder is where they live; of two runs at the same time each needs its own.
var folder = flag.String("folder", "/var/lib/aliquot-e2e", "the folders of the clusters begin so: a dash and a number follow")

// longest are the tests that take longest, the longest first: they begin first, so that none is left to run alone in the end.
var longest = []string{
	"TestKilled", "TestUpgrade", "TestShares", "TestOwnDriver", "TestScheduler", "TestUninstall", "TestTenants", "TestOnlyScheduler", "TestChart", "TestOwnedGangs", "TestFeatures", "TestSizes", "TestHostile",
}

// pool lends clusters to tests.
type pool struct {
	mu   sync.Mutex
	free []*shared
	line []*request // in the order in which they are served
	all  []*shared
}

// request is one test's for a cluster.
type request struct {
	of  string
	got chan *shared
}

// lent are the clusters of all tests of this process.
var lent pool

// TestMain makes room for all tests to stand in line at the same time, and ends the clusters.
func TestMain(m *testing.M) {
	flag.Parse()
	const many = 100
	err := flag.Set("test.parallel", strconv.Itoa(many))
	for i := range *clusters {
		lent.all = append(lent.all, &shared{state: fmt.Sprint(*folder, "-", i)})
	}
	lent.free = slices.Clone(lent.all)
	audits, made := os.MkdirTemp("", "aliquot-audit-")
	for i, one := range lent.all {
		one.audit = testcluster.Audit{Path: filepath.Join(audits, strconv.Itoa(i)), Group: "system:serviceaccounts:" + ours}
	}
	code := m.Run()
	for _, one := range lent.all {
		err = errors.Join(err, one.end())
	}
	all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	if code == 0 && (all || *roles) {
		err = errors.Join(err, allUsed(audits))
	}
	err = errors.Join(err, made, os.RemoveAll(audits))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// take has a test wait until a cluster is free, beside the others that do, and gives it one until it has ended.
func (p *pool) take(t *testing.T) *shared {
	t.Helper()
	mine := p.enter(t.Name())
	t.Parallel() // it goes on once all tests have come here
	p.serve(nil)
	one := <-mine.got
	t.Cleanup(func() { p.serve(one) })
	return one
}

// enter puts a test in line.
func (p *pool) enter(name string) *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := &request{of: name, got: make(chan *shared, 1)}
	p.line = append(p.line, mine)
	slices.SortStableFunc(p.line, func(a, b *request) int { return rank(a.of) - rank(b.of) })
	return mine
}

// rank is a test's place among the longest.
func rank(name string) int {
	name, _, _ = strings.Cut(name, "/")
	if at := slices.Index(longest, name); at >= 0 {
		return at
	}
	return len(longest)
}

// serve gives what is free to who is first in line. A cluster that is given back is free.
func (p *pool) serve(back *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if back != nil {
		p.free = append(p.free, back)
	}
	for len(p.free) > 0 && len(p.line) > 0 {
		p.line[0].got <- p.free[0]
		p.line, p.free = p.line[1:], p.free[1:]
	}
}
