package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CheckServer reports why a server, or a master of a cluster, cannot be used:
//   - its maxmemory-policy is not noeviction. Every other policy may evict keys
//     of ours: allkeys-* takes user records, volatile-* takes Bloom windows and
//     limiter states, which have an expiry. The policy is refused also while
//     maxmemory is 0, because that can be set on a running server;
//   - it lacks the BF.* commands, when bloom is set;
//   - it is a cluster and the client is not made for one, or the reverse.
//
// An in-process server that knows neither INFO memory nor CONFIG evicts
// nothing and passes. A server that cannot be reached, or refuses to say (ACL),
// is an error too.
func CheckServer(ctx context.Context, client redis.UniversalClient, bloom bool) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return checkNode(ctx, client, bloom, false)
	}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := checkNode(ctx, node, bloom, true); err != nil {
			return fmt.Errorf("%s: %w", node.Options().Addr, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("checking redis cluster: %w", err)
	}
	return nil
}

func checkNode(ctx context.Context, node redis.Cmdable, bloom, cluster bool) error {
	if err := node.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("checking redis: %w", err)
	}
	policy, err := evictionPolicy(ctx, node)
	if err != nil {
		return fmt.Errorf("checking redis: maxmemory-policy: %w", err)
	}
	if err := mayEvict(policy); err != nil {
		return fmt.Errorf("checking redis: %w", err)
	}
	info, err := node.Info(ctx, "cluster").Result()
	if err == nil {
		switch enabled := field(info, "cluster_enabled"); {
		case enabled == "1" && !cluster:
			return errors.New("checking redis: the server is part of a cluster, the configuration says it is not")
		case enabled == "0" && cluster:
			return errors.New("checking redis: the server is not part of a cluster, the configuration says it is")
		}
	}
	if bloom {
		return checkBloom(ctx, node)
	}
	return nil
}

func mayEvict(policy string) error {
	if policy == "" || policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("maxmemory-policy is %s and may evict our keys, it must be noeviction", policy)
}

// Evictions asks a server, or each master of a cluster, whether it may evict keys by now,
// and how many it has evicted since it was started, by its address. CheckServer has looked
// at the start; the policy can be changed on a running server, and a replica that takes
// over can have another. unfit names all that may, in the order of their addresses. err
// says that one could not be asked.
func Evictions(ctx context.Context, client redis.UniversalClient) (evicted map[string]int64, unfit, err error) {
	var mu sync.Mutex // guards evicted and may: masters are asked side by side
	evicted = make(map[string]int64)
	var may []string
	ask := func(ctx context.Context, node *redis.Client) error {
		policy, err := evictionPolicy(ctx, node)
		if err != nil {
			return err
		}
		info, err := node.Info(ctx, "stats").Result()
		if err != nil && !Answered(err) {
			return err
		}
		n, _ := strconv.ParseInt(field(info, "evicted_keys"), 10, 64) // not there: it evicts nothing
		addr := node.Options().Addr
		mu.Lock()
		defer mu.Unlock()
		evicted[addr] = n
		if unfit := mayEvict(policy); unfit != nil {
			may = append(may, addr+": "+unfit.Error())
		}
		return nil
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, c)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("asking redis about evictions: %w", err)
	}
	if len(may) > 0 {
		slices.Sort(may)
		unfit = errors.New(strings.Join(may, "; "))
	}
	return evicted, unfit, nil
}

// evictionPolicy is empty if the server has none.
func evictionPolicy(ctx context.Context, node redis.Cmdable) (string, error) {
	info, err := node.Info(ctx, "memory").Result()
	if err == nil {
		if policy := field(info, "maxmemory_policy"); policy != "" {
			return policy, nil
		}
	} else if !Answered(err) {
		return "", err
	}
	settings, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
	switch {
	case err == nil:
		return settings["maxmemory-policy"], nil
	case unknownCommand(err):
		return "", nil
	}
	return "", err
}

func checkBloom(ctx context.Context, node redis.Cmdable) error {
	err := node.BFExists(ctx, FilterKey(0, 0), "probe").Err()
	switch {
	case err == nil || redirected(err):
		// A node that redirects us for this key knows the command.
		return nil
	case unknownCommand(err):
		return errors.New("checking redis: no BF.* commands: Redis 8, Redis Stack, or the Bloom module is needed")
	}
	return fmt.Errorf("checking redis: Bloom module: %w", err)
}

// field reads one line "name:value" of an INFO answer.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Answered reports whether an error of the client is the server's word (a wrong
// type, a missing script) and not the network's: the connection worked, and
// the other commands of the pipeline have their answers.
func Answered(err error) bool {
	var e redis.Error
	return errors.As(err, &e)
}

func unknownCommand(err error) bool {
	return Answered(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}

func redirected(err error) bool {
	return Answered(err) && (strings.HasPrefix(err.Error(), "MOVED ") || strings.HasPrefix(err.Error(), "ASK "))
}
