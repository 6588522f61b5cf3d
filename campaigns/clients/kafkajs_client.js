// One operation with kafkajs: a JSON request on stdin, a JSON answer as the last line of stdout. Bytes are base64.
'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const base64 = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'))

// kafkajs has gzip; the others are plugged in, as its documentation says.
function plugCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
  const zstd = new Promise((resolve) => require('zstd-codec').ZstdCodec.run((z) => resolve(new z.Simple())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
  })
}

const CODECS = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', zstd: 'ZSTD' }

// A header given twice is an array under one name: order between names is kept, between repetitions too.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [].concat(headers[name], [bytes(value)])
    else headers[name] = bytes(value)
  }
  return headers
}

function pairsOf(headers) {
  return Object.entries(headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, base64(one)])
  )
}

async function withAdmin(kafka, use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

async function produce(kafka, { topic, samples, codec, acks, idempotent }) {
  const producer = kafka.producer({
    idempotent,
    maxInFlightRequests: idempotent ? 1 : null,
    allowAutoTopicCreation: true,
  })
  await producer.connect()
  const messages = samples.map(({ key, value, headers, timestamp, partition }) => ({
    key: bytes(key), value: bytes(value), headers: headersOf(headers), timestamp: String(timestamp), partition,
  }))
  for (let at = 0; at < messages.length; at += 2000) {
    const part = messages.slice(at, at + 2000)
    await producer.send({ topic, messages: part, acks, compression: CompressionTypes[CODECS[codec]] })
  }
  await producer.disconnect()
  return {}
}

async function transactional(kafka, transactionalId) {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

const plain = ({ key, value, partition }) => ({ key: bytes(key), value: bytes(value), partition })

async function transact(kafka, { topic, transactionalId, turns }) {
  const producer = await transactional(kafka, transactionalId)
  for (const { samples, commits, group, source, offsets } of turns) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: samples.map(plain) })
    if (group) {
      const partitions = offsets.map(([partition, offset]) => ({ partition, offset: String(offset) }))
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
    }
    await (commits ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
  return {}
}

async function fence(kafka, { topic, transactionalId, samples }) {
  const first = await (await transactional(kafka, transactionalId)).transaction()
  await first.send({ topic, messages: samples.map(plain) })
  await (await (await transactional(kafka, transactionalId)).transaction()).abort()
  try {
    await first.commit()
  } catch (error) {
    return { error: `${error.name}: ${error.message}` }
  }
  return { error: '' }
}

async function member(kafka, { topic, group, sessionTimeout, isolation }, take) {
  const consumer = kafka.consumer({
    readUncommitted: isolation === 'read_uncommitted',
    groupId: group, sessionTimeout, heartbeatInterval: 500, maxWaitTimeInMs: 300, metadataMaxAge: 1000,
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      await take(consumer, {
        partition, offset: Number(message.offset), key: base64(message.key), value: base64(message.value),
        headers: pairsOf(message.headers), timestamp: Number(message.timestamp),
      })
      const offset = String(BigInt(message.offset) + 1n)
      consumer.seen = consumer.seen || {}
      consumer.seen[partition] = { topic, partition, offset }
    },
  })
  return consumer
}

async function leave(consumer) {
  const offsets = Object.values(consumer.seen || {})
  if (offsets.length) await consumer.commitOffsets(offsets)
  await consumer.disconnect()
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function consume(kafka, request) {
  const got = []
  const consumer = await member(kafka, request, async (_, record) => void got.push(record))
  const deadline = Date.now() + request.waitMs
  while (got.length < request.count && Date.now() < deadline) await sleep(20)
  await sleep(20)
  await leave(consumer)
  return { records: got }
}

const say = (name, fields) => console.log(JSON.stringify({ name, timestamp: Date.now(), ...fields }))

// Tells what becomes of it as Kafka's VerifiableConsumer does, and commits after each batch, until SIGTERM.
async function tellingMember(kafka, { topic, group, sessionTimeout, regex }) {
  const consumer = kafka.consumer({
    groupId: group, sessionTimeout, heartbeatInterval: 500, maxWaitTimeInMs: 300, metadataMaxAge: 1000,
  })
  let owned = []
  const release = () => {
    if (owned.length) say('partitions_revoked', { partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.REBALANCING, release)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    release()
    owned = Object.entries(payload.memberAssignment).flatMap(([name, numbers]) =>
      numbers.map((partition) => ({ topic: name, partition })))
    say('partitions_assigned', { partitions: owned })
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [regex ? new RegExp(`^${topic}$`) : topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      const at = { topic: batch.topic, partition: batch.partition }
      const [first, last] = [Number(batch.firstOffset()), Number(batch.lastOffset())]
      say('records_consumed', {
        count: batch.messages.length,
        partitions: [{ ...at, count: batch.messages.length, minOffset: first, maxOffset: last }],
      })
      resolveOffset(batch.lastOffset())
      try {
        await consumer.commitOffsets([{ ...at, offset: String(last + 1) }])
        say('offsets_committed', { success: true, offsets: [{ ...at, offset: last + 1 }] })
      } catch (error) {
        say('offsets_committed', { success: false, error: String(error) })
        throw error
      }
    },
  })
  say('startup_complete', {})
  await new Promise((resolve) => process.once('SIGTERM', resolve))
  await consumer.disconnect()
  release()
  say('shutdown_complete', {})
  process.exit(0)
}

const operations = {
  member: tellingMember,
  produce,
  transact,
  fence,
  consume,
  cluster: (kafka) => withAdmin(kafka, async (admin) => ({
    brokers: (await admin.describeCluster()).brokers.map((b) => [b.nodeId, b.host, b.port]),
    topics: (await admin.fetchTopicMetadata()).topics.map((t) => [t.name, t.partitions.length]),
  })),
  offsets: (kafka, { topic, timestamp }) => withAdmin(kafka, async (admin) => ({
    ends: await admin.fetchTopicOffsets(topic),
    timed: await admin.fetchTopicOffsetsByTimestamp(topic, timestamp),
  })),
  createTopic: (kafka, { topic, partitions, configs }) => withAdmin(kafka, (admin) => admin.createTopics({
    waitForLeaders: true,
    topics: [{
      topic, numPartitions: partitions, replicationFactor: -1,
      configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })),
    }],
  })),
  addPartitions: (kafka, { topic, total }) => withAdmin(kafka, (admin) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: total }] })),
  deleteTopic: (kafka, { topic }) => withAdmin(kafka, (admin) => admin.deleteTopics({ topics: [topic] })),
  topicConfig: (kafka, { topic }) => withAdmin(kafka, async (admin) => {
    const found = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic }] })
    return found.resources[0].configEntries.map((entry) => [entry.configName, entry.configValue])
  }),
  setTopicConfig: (kafka, { topic, key, value }) => withAdmin(kafka, (admin) => admin.alterConfigs({
    validateOnly: false, resources: [{ type: 2, name: topic, configEntries: [{ name: key, value }] }],
  })),
  groupIds: (kafka) => withAdmin(kafka, async (admin) => (await admin.listGroups()).groups.map((g) => g.groupId)),
  groupState: (kafka, { group }) => withAdmin(kafka, async (admin) =>
    (await admin.describeGroups([group])).groups[0].state),
  deleteGroup: (kafka, { group }) => withAdmin(kafka, (admin) => admin.deleteGroups([group])),
}

function loginOf(access) {
  const login = {}
  if (access.tls) login.ssl = { ca: [access.ca], cert: access.certificate, key: access.key }
  const mechanism = (access.mechanism || '').toLowerCase()
  if (mechanism === 'oauthbearer') {
    login.sasl = { mechanism, oauthBearerProvider: async () => ({ value: access.token.trim() }) }
  } else if (mechanism) {
    login.sasl = { mechanism, username: access.user, password: access.password }
  }
  return login
}

async function main() {
  let input = ''
  for await (const chunk of process.stdin) input += chunk
  const request = JSON.parse(input)
  plugCodecs()
  const kafka = new Kafka({
    ...loginOf(request.access),
    clientId: 'matrix', brokers: request.bootstrap.split(','), logLevel: logLevel.ERROR,
    retry: { retries: 8 },
    logCreator: () => ({ log }) => console.error(log.message, log.error || ''),
  })
  const answer = await operations[request.operation](kafka, request)
  const text = JSON.stringify(answer === undefined ? null : answer)
  await new Promise((resolve) => process.stdout.write(text + '\n', resolve)) // exit() would cut a pipe short
}

main().then(() => process.exit(0), (error) => {
  console.error(`${error.name}: ${error.message}`)
  process.exit(1)
})
