package testcluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stopWithin is how long ending a cluster may take.
const stopWithin = time.Minute

// Start builds what is missing and starts a cluster; when it returns, the node is ready and pods run, or, without a node, the API server
// answers. It takes back first what a killed
// cluster of the same folder left. After an error nothing of it runs, and its logs are in the error.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	s, err := checkState(config.State)
	if err != nil {
		return nil, err
	}
	log := orDiscard(config.Log)
	whose := aNode
	if config.Control {
		whose = noNode
	}
	built, err := build(ctx, config.Cache, whose, log)
	if err != nil {
		return nil, err
	}
	lock, err := s.lock()
	if err != nil {
		return nil, err
	}
	c := &Cluster{log: log, cache: config.Cache, control: config.Control, audit: config.Audit, programs: built, state: s, book: machineBook, lock: lock}
	if c.group, err = findGroup(s.groupName()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := c.Stop(); err != nil {
		return nil, fmt.Errorf("take back what an earlier test cluster left in %s: %w", s, err)
	}
	if c.lock, err = s.lock(); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := c.start(ctx, config.Kinds); err != nil {
		return nil, errors.Join(fmt.Errorf("start a test cluster: %w", err), c.Stop())
	}
	log.Info("it is ready", "took", time.Since(begun).Round(time.Second), "kubeconfig", c.Kubeconfig())
	return c, nil
}

func (c *Cluster) start(ctx context.Context, kinds []byte) error {
	if err := c.state.make(); err != nil {
		return err
	}
	var err error
	if !c.control { // which changes nothing elsewhere
		if c.network, err = c.book.enter(c.state); err != nil {
			return err
		}
	}
	if err := c.group.make(); err != nil {
		return err
	}
	if !c.control { // what is measured on devices waits for no compiler beside it
		if err := c.group.first(); err != nil {
			return err
		}
	}
	if c.ports, err = findPorts(); err != nil {
		return err
	}
	if err := c.certify(); err != nil {
		return err
	}
	if err := c.startStore(ctx); err != nil || c.control {
		return err
	}
	if err := c.Create(ctx, kinds); err != nil {
		return err
	}
	if err := errors.Join(c.runControllers(ctx), c.runScheduler(ctx)); err != nil {
		return err
	}
	return c.startNode(ctx)
}

// Stop ends every process of the cluster, pods with them, and removes what it made on this machine. Pods are killed, not told to end:
// a test that wants to see them end deletes them first.
func (c *Cluster) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err := c.group.kill(ctx)
	if err == nil {
		err = errors.Join(c.group.remove(ctx), removeFolder(string(c.state)))
	}
	if err == nil { // what could not be taken back is in the book, for the next one
		err = c.book.leave(c.state)
	}
	if err != nil {
		err = fmt.Errorf("end the test cluster in %s: %w", c.state, err)
	}
	return errors.Join(err, c.lock.Close())
}
