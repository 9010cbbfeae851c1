package proxy

import (
	"fmt"
	"io"

	"github.com/warmring/warmring/ring/gossip"
)

// writeCluster gives the cluster's metrics.
func writeCluster(w io.Writer, c *gossip.Cluster) {
	if c == nil {
		return
	}
	v := c.View()
	ready, differing, lonely := 0, 0, 0
	if v.Lonely {
		lonely = 1
	}
	if v.Ready {
		ready = 1
	}
	for _, m := range v.Members {
		if len(m.Differs) > 0 {
			differing++
		}
	}
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"members", float64(len(v.Members) + 1)}, // this one included
		{"alone", float64(lonely)},               // 1: there are names to join, and nobody was found
		{"lost_members", float64(v.Lost)},
		{"differing_members", float64(differing)},
		{"ready", float64(ready)},
		{"reads_engines", float64(v.Reads)}, // whose pages are this proxy's to read for all
		{"health_score", float64(v.Health)},
		{"oldest_peer_seconds", c.Oldest().Seconds()},
		{"entries", float64(v.Entries)},
		{"news_queued", float64(v.News.Queued)},
		{"inbox_queued", float64(v.Inbox)},
		{"away_sessions", float64(v.Away.Sessions)},
		{"packet_bytes_sent_total", float64(v.Traffic.BytesOut)},
		{"packet_bytes_received_total", float64(v.Traffic.BytesIn)},
		{"packets_sent_total", float64(v.Traffic.PacketsOut)},
		{"packets_received_total", float64(v.Traffic.PacketsIn)},
		{"stream_bytes_sent_total", float64(v.Traffic.StreamOut)},
		{"stream_bytes_received_total", float64(v.Traffic.StreamIn)},
		{"budget_bytes_left", float64(v.Budget.Left)},
		{"written_total", float64(v.Book.Written)},
		{"merged_total", float64(v.Book.Merged)},
		{"known_total", float64(v.Book.Known)},
		{"expired_total", float64(v.Book.Expired)},
		{"news_sent_total", float64(v.News.Sent)},
		{"quick_sent_total", float64(v.Totals.QuickSent)},
		{"received_total", float64(v.Totals.Received)},
		{"strangers_total", float64(v.Strangers)},
		{"joins_total", float64(v.Totals.Joins)},
		{"join_failures_total", float64(v.Totals.JoinFails)},
		{"lookup_failures_total", float64(v.Totals.LookupFails)},
		{"members_lost_total", float64(v.Totals.MembersLost)},
		{"members_left_total", float64(v.Totals.MembersLeft)},
		{"compared_total", float64(v.Totals.Compared)},
		{"digests_read_total", float64(v.Readings.Read)},
		{"digests_heard_total", float64(v.Readings.Heard)},
		{"digests_outdated_total", float64(v.Readings.Outdated)},
		{"imported_total", float64(v.Totals.Imported)},
		{"rebound_total", float64(v.Away.Totals.Rebound)},
		{"met_total", float64(v.Away.Totals.Met)},
		{"unknown_engine_total", float64(v.Away.Totals.Unknown)},
		{"preempt_asked_total", float64(v.Asks.Asked)},
		{"preempt_freed_total", float64(v.Asks.Freed)},
		{"preempt_unanswered_total", float64(v.Asks.Unanswered)},
		{"preempt_got_total", float64(v.Asks.Got)},
	} {
		fmt.Fprintf(w, "warmring_cluster_%s %v\n", m.name, m.value)
	}
	for _, queue := range []struct {
		what  string
		value int
	}{
		{"placements", v.Waiting.Placements}, {"news", v.Waiting.News}, {"digests", v.Waiting.Digests}, {"preempt", v.Waiting.Asks}, {"reply", v.Waiting.Replies},
	} {
		fmt.Fprintf(w, "warmring_cluster_untold{what=%q} %d\n", queue.what, queue.value)
	}
	for _, shed := range []struct {
		what  string
		value uint64
	}{
		{"book", v.Book.Shed}, {"news", v.News.Shed}, {"news_late", v.News.Cut}, {"quick", v.Totals.QuickSkipped}, {"reply", v.Totals.ReplySkipped}, {"inbox", v.Totals.InboxFull},
		{"placer", v.Away.Totals.Dropped}, {"away", v.Away.Totals.Shed}, {"preempt", v.Asks.Shed},
	} {
		fmt.Fprintf(w, "warmring_cluster_shed_total{what=%q} %d\n", shed.what, shed.value)
	}
}
