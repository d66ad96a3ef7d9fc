package sizing

// Input is what a plan is made from. Times are in seconds, memory and disk in bytes,
// shares parts of 1. Each field's range, default and source are those of the
// Parameter that Parameters has for it.
type Input struct {
	// What is asked of the fleet.
	Rate       float64 `json:"rate"`         // notifications a second at the peak; 0 = from PerDay and Peak
	PerDay     float64 `json:"per_day"`      // notifications a day; 0 = from Users and PerUserDay, else from Rate and Peak
	Users      float64 `json:"users"`        // users with a record; 0 = not told: what is kept by user is left out
	PerUserDay float64 `json:"per_user_day"` // notifications of a user a day
	Peak       float64 `json:"peak"`         // rate of the peak by the average of a day
	Devices    float64 `json:"devices"`      // of a user: pushes a notification
	Segments   float64 `json:"segments"`     // of users

	// Workers.
	Workers     float64 `json:"workers"` // 0 = as many as are needed
	Cores       float64 `json:"cores"`   // of a worker
	Busy        float64 `json:"busy"`    // share of them that is planned
	WorkerCPU   float64 `json:"worker_cpu_seconds"`
	DeviceCPU   float64 `json:"device_cpu_seconds"`
	LostWorkers float64 `json:"lost_workers"`
	Zones       float64 `json:"zones"`
	LostZones   float64 `json:"lost_zones"`

	// Providers.
	InFlight        float64 `json:"in_flight"` // of a route in a worker
	APNsLatency     float64 `json:"apns_latency_seconds"`
	APNsStreams     float64 `json:"apns_streams"`
	APNsConnections float64 `json:"apns_connections"`
	FCM             float64 `json:"fcm"` // share of the pushes
	FCMLatency      float64 `json:"fcm_latency_seconds"`
	FCMStreams      float64 `json:"fcm_streams"`
	FCMConnections  float64 `json:"fcm_connections"`
	FCMQuota        float64 `json:"fcm_quota_per_minute"` // of all projects together

	// Kafka.
	Partitions   float64 `json:"partitions"` // of the lane; 0 = as many as are needed
	Open         float64 `json:"open"`       // records of a partition between commit and newest
	Way          float64 `json:"way_seconds"`
	MessageBytes float64 `json:"message_bytes"`
	Retention    float64 `json:"retention_seconds"`
	KafkaCopies  float64 `json:"kafka_copies"`
	KafkaFull    float64 `json:"kafka_full"`
	KafkaCPU     float64 `json:"kafka_cpu_seconds"`

	// Redis.
	Window           float64 `json:"window_seconds"` // of the dedupe filters
	ErrorRate        float64 `json:"error_rate"`
	Fill             float64 `json:"fill"`
	RecordBytes      float64 `json:"record_bytes"`
	DeviceBytes      float64 `json:"device_bytes"`
	LimitWindow      float64 `json:"limit_window_seconds"` // 0 = no limits
	StateBytes       float64 `json:"state_bytes"`
	EventBytes       float64 `json:"event_bytes"`
	Collapse         float64 `json:"collapse"` // share of notifications with a collapse key
	CollapseBytes    float64 `json:"collapse_bytes"`
	CollapseKeyBytes float64 `json:"collapse_key_bytes"`
	RedisReplicas    float64 `json:"redis_replicas"`
	RedisMemory      float64 `json:"redis_memory"` // of a node
	RedisFull        float64 `json:"redis_full"`
	RedisCPU         float64 `json:"redis_cpu_seconds"`
	RedisBusy        float64 `json:"redis_busy"`

	// Cassandra.
	Rows            float64 `json:"rows"` // a push
	RowBytes        float64 `json:"row_bytes"`
	TTL             float64 `json:"ttl_seconds"`
	DroppedAfter    float64 `json:"dropped_after_seconds"`
	CassandraCopies float64 `json:"cassandra_copies"`
	CassandraCPU    float64 `json:"cassandra_cpu_seconds"`
	CassandraCores  float64 `json:"cassandra_cores"` // of a node
	CassandraBusy   float64 `json:"cassandra_busy"`
	CassandraDisk   float64 `json:"cassandra_disk"` // of a node
	CassandraFull   float64 `json:"cassandra_full"`
}

// Default has the default of every parameter. Nothing is asked of it yet: it needs a
// Rate, a PerDay, or Users with PerUserDay.
func Default() Input {
	var in Input
	for _, p := range Parameters() {
		*p.Field(&in) = p.Default
	}
	return in
}
