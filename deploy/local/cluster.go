//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The number of masters that StartRedisCluster starts, and of slots they share.
const (
	clusterNodes = 3
	clusterSlots = 16384
)

// RedisCluster is a Redis Cluster of three masters without replicas, each a
// Server that can be paused, killed and restarted by itself.
type RedisCluster struct {
	Nodes []*Server
}

// StartRedisCluster starts three nodes, gives each a third of the slots, and
// returns when all of them call the cluster complete. ctx bounds the start. A
// Dir in o gets one folder for each node.
func StartRedisCluster(ctx context.Context, o RedisOptions) (*RedisCluster, error) {
	o.clusterBus = true
	dir := o.Dir
	c := &RedisCluster{}
	for i := range clusterNodes {
		if dir != "" {
			o.Dir = filepath.Join(dir, strconv.Itoa(i))
		}
		node, err := StartRedis(ctx, o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting node %d of a redis cluster: %w", i, err), c.Close())
		}
		c.Nodes = append(c.Nodes, node)
	}
	if err := c.join(ctx, o.Access); err != nil {
		return nil, errors.Join(fmt.Errorf("joining a redis cluster: %w", err), c.Close())
	}
	return c, nil
}

// join hands out the slots, introduces the nodes and waits for agreement. It
// is what redis-cli --cluster create does, without its pauses.
func (c *RedisCluster) join(ctx context.Context, access *Access) error {
	for i, node := range c.Nodes {
		first, last := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes-1
		for _, command := range [][]string{
			{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)},
			{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
		} {
			if _, err := redisDo(ctx, node.Addr(), access, command...); err != nil {
				return err
			}
		}
	}
	for _, node := range c.Nodes[1:] {
		if err := c.meet(ctx, node, access); err != nil {
			return fmt.Errorf("introducing %s: %w", node.Addr(), err)
		}
	}
	return c.await(ctx, access)
}

// await waits until every node calls the cluster complete.
func (c *RedisCluster) await(ctx context.Context, access *Access) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		complete := 0
		for _, node := range c.Nodes {
			info, err := redisDo(ctx, node.Addr(), access, "CLUSTER", "INFO")
			if err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", clusterNodes)) {
				complete++
			}
		}
		if complete == clusterNodes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes call it complete: %w", complete, clusterNodes, context.Cause(ctx))
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// meet introduces node to the first one.
func (c *RedisCluster) meet(ctx context.Context, node *Server, access *Access) error {
	host, port, err := net.SplitHostPort(node.Addr())
	if err != nil {
		return err
	}
	_, err = redisDo(ctx, c.Nodes[0].Addr(), access, "CLUSTER", "MEET", host, port, strconv.Itoa(node.busPort))
	return err
}

// Addrs are the host:port of all nodes.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Wipe empties every node.
func (c *RedisCluster) Wipe(ctx context.Context) error {
	return c.each(func(s *Server) error { return s.Wipe(ctx) })
}

// Stop stops every node.
func (c *RedisCluster) Stop(ctx context.Context) error {
	return c.each(func(s *Server) error { return s.Stop(ctx) })
}

// Close closes every node.
func (c *RedisCluster) Close() error { return c.each((*Server).Close) }

func (c *RedisCluster) each(do func(*Server) error) error {
	var failures error
	for _, node := range c.Nodes {
		failures = errors.Join(failures, do(node))
	}
	return failures
}
