/* How a republish sends a shard's records exactly once: `send_shard` and `open_run`.

   Two attempts of a run, each of which may stop at any step for ever (a kill) or for any time (a
   zombie) and create any number of producers, send three records in transactions of one to three.
   Kafka is the coordinator of two transactional ids, the target partition, and the group with the
   progress, in version 1 of the transaction protocol, which is librdkafka's.

   Only one thing about an epoch matters: whether it is the newest. So there are no numbers here;
   who has the newest one is the owner of the transactional id. */

#define RECORDS 3
#define NONE 9		/* no progress */
#define NOBODY 2	/* no attempt */

/* The transactional ids: the run's, whose transaction writes the first progress; the shard's. */
#define OPEN 0
#define SHARD 1

mtype = { idle, ongoing, committing, aborting };
mtype = { run_id, shard_id };
#define NAME(id) (id == OPEN -> run_id : shard_id)

typedef Coordinator {
	mtype state = idle;
	byte owner = NOBODY;
	/* Partitions of the transaction that have no marker yet: the target, that of the group. */
	bool in_target, in_group;
	/* EndTxn requests of the newest epoch, which may arrive late, and more than once. */
	bool commit_sent, abort_sent;
	/* Whether this epoch's last transaction was committed: Kafka's answer to its owner. */
	bool is_committed
}
Coordinator txn[2];

/* The target: how often each record is seen with read_committed, and how often it is in the
   transaction that is open; which attempts it refuses, because it knows of a newer epoch. */
byte seen[RECORDS], held[RECORDS];
bool refused_by_target[2];

/* The group: the progress, and each transactional id's offset that is pending. Its coordinator may
   take in a transaction's decision some time after the transaction is complete (older Kafka). */
byte progress = NONE;
byte pending[2] = NONE;
mtype decision[2] = idle;
/* Of two offsets, the one that was written later counts. */
bool is_newer[2];
byte latest;
bool refused_by_group[4];

/* `opened.json`. */
bool is_opened;

/* The promises. */
bool once = true, in_order = true, nothing_lost = true, progress_found = true;

/* --- what attempts ask of Kafka ----------------------------------------------------------- */

/* InitProducerId, in `fenced_producer`: aborts what is open, and waits until it is decided. */
inline fence(id) {
	do
	:: atomic { txn[id].state == ongoing -> abort_by_epoch(id) }
	:: atomic { txn[id].state == idle ->
		raise_epoch(id);
		txn[id].owner = me;
		if
		:: id == SHARD -> refused_by_target[me] = false
		:: else
		fi;
		refused_by_group[2 * id + me] = false;
		printf("attempt %d fences %e\n", me, NAME(id));
		break }
	od
}

inline raise_epoch(id) {
	txn[id].owner = NOBODY;
	txn[id].commit_sent = false;
	txn[id].abort_sent = false;
	txn[id].is_committed = false
}

inline abort_by_epoch(id) {
	raise_epoch(id);
	txn[id].state = aborting
}

/* AddPartitionsToTxn, AddOffsetsToTxn. */
inline add(id, partition) {
	atomic {
		if
		:: txn[id].owner != me -> goto lost
		:: txn[id].owner == me && (txn[id].state == idle || txn[id].state == ongoing) ->
			txn[id].state = ongoing;
			txn[id].is_committed = false;
			partition = true
		fi
	}
}

inline produce(record) {
	atomic {
		if
		:: refused_by_target[me] -> goto lost
		:: else -> held[record]++; printf("attempt %d sends record %d\n", me, record + 1)
		fi
	}
}

/* TxnOffsetCommit. */
inline commit_offset(id, value) {
	atomic {
		if
		:: refused_by_group[2 * id + me] -> goto lost
		:: !refused_by_group[2 * id + me] && decision[id] == idle ->
			pending[id] = value;
			is_newer[id] = true;
			latest = id;
			printf("attempt %d adds progress %d to its transaction\n", me, value)
		fi
	}
}

/* EndTxn, in `commit_transaction`; the answer may be lost, before or after the decision. */
inline commit(id) {
	atomic {
		if
		:: txn[id].owner != me -> goto lost
		:: else -> txn[id].commit_sent = true; printf("attempt %d commits %e\n", me, NAME(id))
		fi
	}
	atomic {
		if
		:: txn[id].owner == me && txn[id].is_committed
		:: goto lost
		fi
	}
}

/* OffsetFetch, in `ProgressStore.read`; without `waits`, and with it (KIP-447). */
inline read(to) {
	atomic { to = progress; printf("attempt %d reads progress %d\n", me, to) }
}

inline read_waiting(to) {
	atomic { pending[OPEN] == NONE && pending[SHARD] == NONE ->
		to = progress; printf("attempt %d reads progress %d\n", me, to) }
}

/* `ProgressError`; no offset expires here. */
inline refuse() {
	progress_found = false;
	assert(progress_found)
}

/* --- an attempt --------------------------------------------------------------------------- */

proctype Attempt(byte me) {
	byte at, sent;
	bool has_producer, was_opened;

open:	/* `_begin` */
	fence(OPEN);
#ifndef OPENED_READ_LAST
	was_opened = is_opened;
#endif
	read(at);
#ifndef OPENED_ON_SIGHT
	if
	:: at == NONE -> read_waiting(at)
	:: else
	fi;
#endif
#ifdef OPENED_READ_LAST
	was_opened = is_opened;
#endif
	if
	:: at == NONE && was_opened -> refuse()
	:: at == NONE && !was_opened -> at = 0
	:: at == RECORDS	/* `_finished`: written again, as it is */
	:: else -> at = NONE	/* this transaction counts the attempt, and writes no progress */
	fi;
	add(OPEN, txn[OPEN].in_group);
	if
	:: at != NONE -> commit_offset(OPEN, at)
	:: else
	fi;
	commit(OPEN);
	atomic { is_opened = true; at = 0; printf("attempt %d has opened the run\n", me) }

send:	/* `_transactions` */
#ifdef PROGRESS_BEFORE_FENCE
	read_waiting(at);
#endif
	if
#ifdef KEPT_PRODUCER
	:: has_producer
	:: !has_producer -> fence(SHARD)
#else
	:: fence(SHARD)
#endif
	fi;
	has_producer = true;
#ifndef PROGRESS_BEFORE_FENCE
#ifdef PROGRESS_ON_SIGHT
	read(at);
#else
	read_waiting(at);
#endif
#endif
	if
	:: at == NONE -> refuse()
	:: at == RECORDS -> goto complete
	:: else
	fi;
	/* `_send_transaction` */
	sent = at;
	add(SHARD, txn[SHARD].in_target);
	do
	:: sent < RECORDS -> produce(sent); sent++
	:: sent > at -> break
	:: goto lost
	od;
	add(SHARD, txn[SHARD].in_group);
	commit_offset(SHARD, sent);
	commit(SHARD);
	if
	:: sent < RECORDS -> goto send
	:: else -> goto complete
	fi;

lost:	/* `ProducerLost`: the transaction may be committed, or may yet be */
	if
	:: !has_producer -> goto open
	:: has_producer -> has_producer = false;
		if	/* `_abort` */
		:: atomic { txn[SHARD].owner == me -> txn[SHARD].abort_sent = true }
		:: true
		fi;
		goto send
	fi;

complete:
	skip;
	d_step {
		printf("attempt %d has finished\n", me);
		sent = 0;
		do
		:: sent < RECORDS ->
			nothing_lost = nothing_lost &&
				seen[sent] + (txn[SHARD].state == committing -> held[sent] : 0) > 0;
			sent++
		:: else -> break
		od;
		assert(nothing_lost)
	}
}

/* --- Kafka and the network: in any order, at any time --------------------------------------- */

/* A marker in the target: the transaction's records are seen from now on, or never. */
inline mark_target() {
	record = 0;
	do
	:: record < RECORDS ->
		if
		:: txn[SHARD].state == committing ->
			seen[record] = seen[record] + held[record];
			once = once && seen[record] <= 1;
			in_order = in_order && (record == 0 || seen[record] <= seen[record - 1]);
			printf("record %d is seen %d times\n", record + 1, seen[record])
		:: else
		fi;
		held[record] = 0;
		record++
	:: else -> break
	od;
	record = 0;
	refused_by_target[0] = refused_by_target[0] || txn[SHARD].owner != 0;
	refused_by_target[1] = refused_by_target[1] || txn[SHARD].owner != 1;
	txn[SHARD].in_target = false;
	assert(once);
	assert(in_order)
}

inline mark_group(id) {
	decision[id] = txn[id].state;
	refused_by_group[2 * id] = refused_by_group[2 * id] || txn[id].owner != 0;
	refused_by_group[2 * id + 1] = refused_by_group[2 * id + 1] || txn[id].owner != 1;
	txn[id].in_group = false
}

inline decide_offset(id) {
	if
	:: decision[id] == committing && pending[id] != NONE && is_newer[id] ->
		progress = pending[id];
		printf("Kafka shows progress %d\n", progress);
		is_newer[1 - id] = is_newer[1 - id] && latest != id
	:: else
	fi;
	pending[id] = NONE;
	is_newer[id] = false;
	decision[id] = idle
}

#define is_decided(id) (txn[id].state == committing || txn[id].state == aborting)

proctype Kafka(byte id) {
	byte record;
end:
	do
	:: d_step { txn[id].state == ongoing && txn[id].commit_sent ->
		txn[id].state = committing; txn[id].is_committed = true;
		printf("Kafka commits %e\n", NAME(id)) }
	:: d_step { txn[id].state == ongoing && txn[id].abort_sent -> txn[id].state = aborting }
	:: d_step { txn[id].state == ongoing -> abort_by_epoch(id) }	/* its timeout */
	:: d_step { is_decided(id) && id == SHARD && txn[id].in_target -> mark_target() }
	:: d_step { is_decided(id) && txn[id].in_group -> mark_group(id) }
	:: d_step { is_decided(id) && !txn[id].in_target && !txn[id].in_group ->
		txn[id].state = idle }
	:: d_step { decision[id] != idle -> decide_offset(id) }
	od
}

init {
	atomic {
		run Kafka(OPEN);
		run Kafka(SHARD);
		run Attempt(0);
		run Attempt(1)
	}
}
