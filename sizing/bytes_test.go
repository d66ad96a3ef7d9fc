package sizing_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users/record"
)

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func word(n int) string { return base64.RawURLEncoding.EncodeToString(random(n)) }

// userOf has one device, and with facts also a profile and, every fourth, preferences.
func userOf(i int, platform push.Platform, facts bool, at time.Time) *push.User {
	d := push.Device{Platform: platform, App: "shop", Locale: "nl-BE", RegisteredAt: at}
	if platform == push.APNS {
		d.Environment, d.Token = push.Production, hex.EncodeToString(random(32))
	} else {
		d.Token = (word(16) + ":" + word(105))[:163] // as long as Google's
	}
	d.Hash = push.DeviceHash(d.Platform, d.Token)
	u := &push.User{Devices: []push.Device{d}}
	if facts {
		u.Profile = push.Profile{Locale: "nl-BE", Zone: "Europe/Brussels", Country: "BE", Number: uint32(i), HasNumber: true, LastActivity: at}
		if i%4 == 0 {
			u.Preferences = push.Preferences{Types: []string{"promotion"}, Quiet: []push.QuietHours{{From: 22 * 60, To: 7 * 60}}}
		}
	}
	return u
}

// BenchmarkRedisBytes shows the bytes of used_memory that a key takes in a real Redis,
// its part of the tables included. There are 262,144, with which Redis' tables are full;
// right after they have grown a key takes some 8 bytes more, one with a time to live 16.
func BenchmarkRedisBytes(b *testing.B) {
	const keys = 1 << 18
	client, at := shardstest.Connect(b, localtest.Redis(b, local.RedisOptions{}).Addr()), time.Now()
	ctx := b.Context()
	used := func() (bytes int64) {
		info, err := client.Info(ctx, "memory").Result()
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "\nused_memory:")
		if _, err := fmt.Sscan(rest, &bytes); err != nil {
			b.Fatal(err)
		}
		return bytes
	}
	fill := func(name string, command func(i int) [][]any) {
		b.Run(name, func(b *testing.B) {
			if err := client.FlushAll(ctx).Err(); err != nil {
				b.Fatal(err)
			}
			before := used()
			for i := 0; i < keys; {
				pipe := client.Pipeline()
				for end := i + 4096; i < end; i++ {
					for _, args := range command(i) {
						pipe.Do(ctx, args...)
					}
				}
				if _, err := pipe.Exec(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(used()-before)/keys, "B/key")
			b.ReportMetric(0, "ns/op")
		})
	}
	owner := func(i int) string { return fmt.Sprintf("u%011d", i) }
	shard := func(i int) int { return shards.UserShard(owner(i)) }
	for _, platform := range []push.Platform{push.APNS, push.FCM} {
		for _, facts := range []bool{false, true} {
			fill(fmt.Sprintf("record/%v/facts=%v", platform, facts), func(i int) [][]any {
				return [][]any{{"SET", shards.UserKey(shard(i), owner(i)), record.Encode(nil, userOf(i, platform, facts, at), 1)}}
			})
		}
	}
	fill("token", func(i int) [][]any {
		hash := word(12)
		return [][]any{{"SET", shards.TokenKey(shards.TokenShard(hash), hash), random(1 + 8 + 1 + 6 + 1 + len(owner(i)))}} // record.Claims: one
	})
	for _, events := range []int{1, 3, 5, 10, 20} {
		fill(fmt.Sprintf("limits/events=%d", events), func(i int) [][]any {
			return [][]any{{"SET", shards.LimiterKey(shard(i), owner(i)), random(12 + 29*events), "PX", 48 * 3600 * 1000}} // limits/state.go, version 2
		})
	}
	for _, marks := range []int{1, 5, 20} {
		fill(fmt.Sprintf("collapse/keys=%d", marks), func(i int) [][]any {
			key := shards.CollapseKey(shard(i), owner(i))
			add := []any{"ZADD", key}
			for range marks {
				add = append(add, at.UnixMilli(), word(12))
			}
			return [][]any{add, {"PEXPIRE", key, 24 * 3600 * 1000}}
		})
	}
	for _, ids := range []int{312_500, 4_000_000} {
		b.Run(fmt.Sprintf("filter/ids=%d", ids), func(b *testing.B) {
			if err := client.FlushAll(ctx).Err(); err != nil {
				b.Fatal(err)
			}
			const several = 32 // what the connection takes is spread over them
			before := used()
			for k := range several {
				if err := client.Do(ctx, "BF.RESERVE", k, 0.001, ids, "NONSCALING").Err(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(used()-before)*8/several/float64(ids), "bits/id")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkCassandraBytes shows what a status row takes on the disk of a real Cassandra
// with the shipped table: 400,000 rows that say DELIVERED, at 20,000 a second.
func BenchmarkCassandraBytes(b *testing.B) {
	const rows, batch = 400_000, 20_000
	host := localtest.Require(b).Cassandra
	for _, tt := range []struct {
		platform push.Platform
		packed   bool
	}{{push.APNS, false}, {push.FCM, false}, {push.APNS, true}, {push.FCM, true}} {
		b.Run(fmt.Sprintf("%v/packed=%v", tt.platform, tt.packed), func(b *testing.B) {
			ctx := b.Context()
			o := status.Options{Hosts: []string{host}, Keyspace: "bytes_" + strings.ReplaceAll(uuid.NewString(), "-", ""), PackedRows: tt.packed}
			if _, err := status.ApplySchema(ctx, o, status.SchemaOptions{}); err != nil {
				b.Fatal(err)
			}
			store, err := status.OpenCassandra(ctx, o)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			began := time.Now()
			for done := 0; done < rows; done += batch {
				if err := store.Write(ctx, deliveredRows(batch, tt.platform, began.Add(time.Duration(done)*50*time.Microsecond))); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(onDisk(b, o))/rows, "B/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// deliveredRows are 50 us apart.
func deliveredRows(n int, platform push.Platform, from time.Time) []push.Row {
	rows := make([]push.Row, n)
	for i := range rows {
		at := from.Add(time.Duration(i) * 50 * time.Microsecond)
		id := uuid.Must(uuid.NewV7())
		for k := range 6 {
			id[k] = byte(at.UnixMilli() >> (40 - 8*k))
		}
		said := uuid.NewString()
		if platform == push.FCM {
			said = fmt.Sprintf("projects/example-shop/messages/0:%d%%%x", at.UnixMicro(), random(8))
		}
		rows[i] = push.Row{ID: id.String(), Device: word(12), State: push.StateDelivered, At: at, Platform: platform, ProviderID: said, UserHash: uint64(at.UnixNano()) * 0x9e3779b97f4a7c15,
			Place: push.Partition{Topic: "push.transactional", ID: int32(i % 14)}.Place(int64(i))}
	}
	return rows
}

// onDisk has the table flushed, and waits until its size, in whole MiB, stays the same
// for five looks.
func onDisk(b *testing.B, o status.Options) int64 {
	b.Helper()
	session, err := status.OpenSession(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	if err := session.Exec(b.Context(), "ALTER TABLE "+o.Keyspace+".notification_status WITH memtable_flush_period_in_ms = 2000"); err != nil {
		b.Fatal(err)
	}
	look := time.NewTicker(2 * time.Second)
	defer look.Stop()
	for was, same := int64(0), 0; ; <-look.C {
		var mib int64
		if err := session.Query(b.Context(), "SELECT mebibytes FROM system_views.disk_usage WHERE keyspace_name = ? AND table_name = ?",
			[]any{o.Keyspace, "notification_status"}, []any{&mib}, func() {}); err != nil {
			b.Fatal(err)
		}
		if same++; mib != was || mib == 0 {
			was, same = mib, 0
		}
		if same == 5 {
			return mib << 20
		}
	}
}
