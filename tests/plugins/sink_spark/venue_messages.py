"""Messages of each venue, of every kind that fills a table. The tests of decoders share them."""

from __future__ import annotations

_USDM_DEPTH = (
    '{"e":"depthUpdate","E":20,"T":19,"s":"X","U":%d,"u":%d,"pu":%d,"b":[["1.5","2"],["1.4","0.000"]],'
    '"a":[["1.6","3"]]}'
)
_OKX_BOOK = (
    '{"arg":{"channel":"books","instId":"BTC-USDT"},"action":"%s","data":[{"asks":[["3","1","0","1"]],'
    '"bids":[["2","0","0","0"]],"ts":"1500"%s,"checksum":-67}]}'
)
_KRAKEN_TRADES = (
    '{"channel":"trade","type":"%s","data":[{"symbol":"A/B","side":"sell","price":1.5,"qty":2,"ord_type":"limit",'
    '"trade_id":41,"timestamp":"1970-01-01T00:00:01Z"},{"symbol":"A/B","side":"buy","price":1.6,"qty":3,'
    '"ord_type":"limit","trade_id":42,"timestamp":"1970-01-01T00:00:01Z"}]}'
)
_KRAKEN_BOOK = (
    '{"channel":"book","type":"snapshot","data":[{"symbol":"X","bids":[{"price":1,"qty":2}],"asks":[],'
    '"checksum":1%s}]}'
)
_COINBASE_MATCH = (
    '{"type":"%s","trade_id":8,"maker_order_id":"f","taker_order_id":"d","side":"sell","size":"335",'
    '"price":"0.5762","product_id":"SKL-GBP","sequence":2,"time":"2021-04-17T16:43:37.270697Z"}'
)
_COINBASE_TICKER = (
    '{"type":"ticker","sequence":6,"product_id":"A-B","price":"1","best_bid":"1","best_ask":"2","side":"buy"%s,'
    '"trade_id":8,"last_size":"335"}'
)
_BITSTAMP_BOOK = (
    '{"data":{"timestamp":"1","microtimestamp":"1641343721243000","bids":[["1","2"]],"asks":[]},'
    '"channel":"%s_ethusd","event":"data"}'
)
_OKX_QUOTES = (
    '{"arg":{"channel":"%s","instId":"X"},"data":[{"asks":[],"bids":[["2","7","0","1"]],"ts":"5","seqId":8}]}'
)
MESSAGES: dict[str, dict[str, str]] = {
    "binance-spot": {
        "trade": '{"e":"trade","E":20,"s":"BTCUSDT","t":9,"p":"0.10000000","q":"3","T":19,"m":true,"M":true}',
        "aggTrade": '{"e":"aggTrade","E":20,"a":7,"s":"X","p":"7.6","q":"137","f":5,"l":6,"T":19,"m":false}',
        "depth": (
            '{"e":"depthUpdate","E":20,"s":"X","U":5,"u":7,"b":[["1.5","2"],["1.4","0.000"]],"a":[["1.6","3"]]}'
        ),
        "bookTicker": '{"u":4,"s":"X","b":"1.5","B":"2","a":"0.00","A":"0"}',
    },
    "binance-usdm": {
        "trade": '{"e":"trade","E":20,"T":19,"s":"X","t":9,"p":"61.8","q":"0.5","X":"MARKET","m":false}',
        "aggTrade": '{"e":"aggTrade","E":20,"a":7,"s":"X","p":"7.6","q":"137","f":5,"l":6,"T":19,"m":false}',
        "depth": _USDM_DEPTH % (5, 7, 3),
        "next depth": _USDM_DEPTH % (8, 9, 7),
        "bookTicker": ('{"e":"bookTicker","u":4,"s":"X","b":"1.5","B":"2","a":"1.6","A":"3","T":19,"E":20}'),
    },
    "bitstamp": {
        "trade": (
            '{"data":{"id":21,"timestamp":"1641343721","amount":0.6,"amount_str":"0.60000000","price":3800.75,'
            '"price_str":"3800.75","type":1,"microtimestamp":"1641343721243000"},"channel":"live_trades_ethusd",'
            '"event":"trade"}'
        ),
        "diff": _BITSTAMP_BOOK % "diff_order_book",
        "book": _BITSTAMP_BOOK % "order_book",
    },
    "coinbase": {
        "match": _COINBASE_MATCH % "match",
        "last_match": _COINBASE_MATCH % "last_match",
        "snapshot": '{"type":"snapshot","product_id":"A-B","asks":[["2","3"]],"bids":[["1","4"]]}',
        "l2update": (
            '{"type":"l2update","product_id":"A-B","changes":[["sell","2","0.0"],["buy","1","5"]],'
            '"time":"1970-01-01T00:00:01.5Z"}'
        ),
        "ticker": _COINBASE_TICKER % ',"time":"1970-01-01T00:00:01Z"',
        "ticker without a time": _COINBASE_TICKER % "",
    },
    "hyperliquid": {
        "trades": (
            '{"channel":"trades","data":[{"coin":"BTC","side":"A","px":"105056.0","sz":"0.1","time":15,"hash":"0",'
            '"tid":9}]}'
        ),
        "l2Book": (
            '{"channel":"l2Book","data":{"coin":"BTC","levels":[[{"n":5,"px":"2","sz":"3"}],'
            '[{"n":1,"px":"4","sz":"1"}]],"time":15}}'
        ),
        "bbo": '{"channel":"bbo","data":{"coin":"BTC","time":15,"bbo":[{"n":5,"px":"2","sz":"3"},null]}}',
    },
    "kraken": {
        "v1 bids": '[1920,{"b":[["0.5","0.0","1.5","r"],["0.4","1","1.25"]],"c":"4294967295"},"book-10","A/B"]',
        "v1 both sides": '[1,{"a":[["3","1","2.0"]]},{"b":[["2","1","2.5"]],"c":"7"},"book-10","A/B"]',
        "v1 snapshot": '[1,{"as":[["3","1","2.0"]],"bs":[["2","1","1.0"]]},"book-25","A/B"]',
        "v1 trades": '[0,[["5541.2","0.1","1534614057.321597","s","l",""],["1","2","3.5","b","m",""]],"trade","X/U"]',
        "v1 spread": '[0,["1.5","1.6","2.25","7","8"],"spread","X/U"]',
        "v2 book": (
            '{"channel":"book","type":"update","data":[{"symbol":"A/B","bids":[{"price":0.1,"qty":1e-8}],"asks":'
            '[{"price":12345678901234567.123456789,"qty":0}],"checksum":7,"timestamp":"1970-01-01T00:00:01.5Z"}]}'
        ),
        "v2 snapshot": _KRAKEN_BOOK % ',"timestamp":"1970-01-01T00:00:01Z"',
        "v2 snapshot without a time": _KRAKEN_BOOK % "",
        "v2 trades": _KRAKEN_TRADES % "update",
        "v2 trades of a snapshot": _KRAKEN_TRADES % "snapshot",
        "v2 ticker": (
            '{"channel":"ticker","type":"update","data":[{"symbol":"A/B","bid":1.5,"bid_qty":2,"ask":1.6,'
            '"ask_qty":3}]}'
        ),
    },
    "okx": {
        "trades": (
            '{"arg":{"channel":"trades","instId":"X"},"data":[{"instId":"X","tradeId":"12","px":"1.5","sz":"2",'
            '"side":"buy","ts":"1500","count":"3"}]}'
        ),
        "books": _OKX_BOOK % ("snapshot", ',"seqId":9,"prevSeqId":-1'),
        "older books": _OKX_BOOK % ("update", ""),
        "books5": _OKX_QUOTES % "books5",
        "bbo-tbt": _OKX_QUOTES % "bbo-tbt",
        "tickers": (
            '{"arg":{"channel":"tickers","instId":"X"},"data":[{"askPx":"3","askSz":"4","bidPx":"","bidSz":"",'
            '"ts":"5"}]}'
        ),
    },
}
VENUES = tuple(MESSAGES)


def of(venue: str) -> list[bytes]:
    """Returns the messages that the venue's decoder reads."""
    return [message.encode() for message in MESSAGES[venue].values()]


def enveloped(message: str) -> str:
    """Returns a message as a combined stream of Binance sends it."""
    return f'{{"stream":"x","data":{message}}}'
